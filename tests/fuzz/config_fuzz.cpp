// Any text as a config file or device spec is read or refused with a UserError, and what was read
// prints to a text that reads back to the same.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "config/device_spec.h"
#include "config/load.h"
#include "config/validate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const weft::Config config = weft::parse_config(text, "run.toml", {});
    const std::string printed = weft::config_to_toml(config);
    const weft::Config again = weft::parse_config(printed, "printed.toml", {});
    CHECK(weft::config_to_toml(again) == printed, printed);
    weft::validate(config, 1);
  } catch (const weft::UserError&) {
  }
  try {
    weft::parse_device_spec(text, "machine.toml");
  } catch (const weft::UserError&) {
  }
  return 0;
}
