// Every accepted Hugging Face config.json is a model that can be written and read again.
#include "fuzz/fuzz.h"
#include "model/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::only_user_errors([&] {
    const weft::ModelSpec spec = weft::parse_hf_config(weft::text_of(data, size), "config.json");
    const std::string printed = weft::hf_config_text(spec, "float32");
    weft::must_hold(weft::hf_config_text(weft::parse_hf_config(printed, "again"), "float32") ==
                    printed);
  });
  return 0;
}
