// A byte-pair tokenizer small enough to work out by hand: all bytes (id = byte), then "ab" (256),
// "abc" (257) from "ab" and "c", "bc" (258), " ab" (259), and the end token (260).
#pragma once

#include <string>
#include <vector>

#include "data/bpe_tokenizer.h"

namespace weft {

inline BpeParts tiny_bpe_parts() {
  BpeParts parts;
  for (int32_t byte = 0; byte < 256; ++byte) {
    parts.tokens.emplace_back(byte, std::string(1, static_cast<char>(byte)));
  }
  parts.tokens.insert(parts.tokens.end(), {{256, "ab"}, {257, "abc"}, {258, "bc"}, {259, " ab"}});
  parts.merges = {{'a', 'b', 256}, {256, 'c', 257}, {'b', 'c', 258}, {' ', 256, 259}};
  parts.added = {{.id = 260, .content = "<|endoftext|>"}};
  return parts;
}

inline std::vector<int32_t> encode_all(const BpeParts& parts, std::string_view text,
                                       Specials specials = Specials::AsText) {
  const BpeTokenizer tokenizer(parts);
  std::vector<int32_t> ids;
  BpeEncoder(tokenizer, specials).encode(text, {"text"}, ids);
  return ids;
}

}  // namespace weft
