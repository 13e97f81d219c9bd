// Every accepted plan must print to a text that parses to the same plan.
#include "fuzz/fuzz.h"
#include "plan/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::only_user_errors([&] {
    const weft::Plan plan = weft::parse_plan(weft::text_of(data, size));
    const std::string printed = weft::print_plan(plan);
    weft::must_hold(weft::print_plan(weft::parse_plan(printed)) == printed);
  });
  return 0;
}
