#include "data/byte_alphabet.h"

#include <array>
#include <map>

#include "data/utf8.h"

namespace weft {

namespace {

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::map<char32_t, char> bytes;

  Alphabet() {
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
      characters[byte] = visible ? byte : next++;
      bytes[characters[byte]] = static_cast<char>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    append_utf8(text, alphabet().characters[static_cast<unsigned char>(c)]);
  }
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const auto code_point = next_code_point(text, at);
    if (!code_point) return std::nullopt;
    const auto found = alphabet().bytes.find(*code_point);
    if (found == alphabet().bytes.end()) return std::nullopt;
    bytes += found->second;
  }
  return bytes;
}

std::string bytes_in_alphabet_order() {
  std::string bytes;
  for (const auto& [character, byte] : alphabet().bytes) bytes += byte;
  return bytes;
}

}  // namespace weft
