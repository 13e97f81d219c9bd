// Every accepted config must print to a text that parses to the same config; the same text may also
// be a device spec.
#include <string>

#include "config/device_spec.h"
#include "config/load.h"
#include "config/validate.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = weft::text_of(data, size);
  weft::only_user_errors([&] {
    const weft::Config config = weft::parse_config(text, "run.toml", {});
    const std::string printed = weft::config_to_toml(config);
    weft::must_hold(weft::config_to_toml(weft::parse_config(printed, "again", {})) == printed);
    weft::validate(config, 1, {});
  });
  weft::only_user_errors([&] { weft::parse_device_spec(text, "machine.toml"); });
  return 0;
}
