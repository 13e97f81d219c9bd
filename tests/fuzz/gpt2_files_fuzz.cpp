// encoder.json and vocab.bpe with a zero byte between them: every accepted pair must survive being
// written as tokenizer.json.
#include <algorithm>

#include "data/tokenizer_files.h"
#include "data/tokenizer_json.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = weft::text_of(data, size);
  const size_t middle = std::min(text.find('\0'), text.size());
  const std::string_view merges = text.substr(std::min(middle + 1, text.size()));
  weft::only_user_errors([&] {
    const weft::BpeTokenizer tokenizer(
        weft::parse_gpt2_files(text.substr(0, middle), "encoder", merges, "merges"));
    const std::string printed = weft::tokenizer_json_text(tokenizer.parts());
    weft::must_hold(weft::BpeTokenizer(weft::parse_tokenizer_json(printed, "again")).hash() ==
                    tokenizer.hash());
  });
  return 0;
}
