// Every accepted file must survive being written as tokenizer.json.
#include "data/tokenizer_files.h"
#include "data/tokenizer_json.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::only_user_errors([&] {
    const weft::BpeTokenizer tokenizer(
        weft::parse_tiktoken(weft::text_of(data, size), "input", {}));
    const std::string printed = weft::tokenizer_json_text(tokenizer.parts());
    weft::must_hold(weft::BpeTokenizer(weft::parse_tokenizer_json(printed, "again")).hash() ==
                    tokenizer.hash());
  });
  return 0;
}
