// Every accepted text must print to a text that parses to the same value.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::only_user_errors([&] {
    const nlohmann::json value = weft::parse_json(weft::text_of(data, size), "input");
    weft::must_hold(weft::parse_json(value.dump(), "again") == value);
  });
  return 0;
}
