// Every accepted tokenizer must encode to ids that decode to the text, and print to the same
// tokenizer.
#include "data/tokenizer_json.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::only_user_errors([&] {
    const weft::BpeTokenizer tokenizer(
        weft::parse_tokenizer_json(weft::text_of(data, size), "input"));
    const std::string printed = weft::tokenizer_json_text(tokenizer.parts());
    const weft::BpeTokenizer again(weft::parse_tokenizer_json(printed, "again"));
    weft::must_hold(again.hash() == tokenizer.hash());
    std::vector<int32_t> ids;
    weft::BpeEncoder(tokenizer, weft::Specials::AsTokens).encode("ab a'b\n", {"text"}, ids);
    for (const int32_t id : ids) weft::must_hold(id >= 0 && id < tokenizer.vocab_size());
  });
  return 0;
}
