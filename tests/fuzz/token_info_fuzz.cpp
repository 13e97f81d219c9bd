// Every accepted text must print to a text with the same meaning.
#include "data/token_file.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::only_user_errors([&] {
    const weft::TokenFileInfo info = weft::parse_token_info(weft::text_of(data, size), "input");
    const std::string text = weft::token_info_text(info);
    weft::must_hold(weft::token_info_text(weft::parse_token_info(text, "again")) == text);
  });
  return 0;
}
