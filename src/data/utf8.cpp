// One code point at a time.
#include "data/utf8.h"

#include <cstdint>
#include <cstring>

namespace weft {

std::optional<char32_t> next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc0 || first >= 0xf8 || text.size() - at < length) return std::nullopt;
  char32_t value = first & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return std::nullopt;
    value = (value << 6) | (byte(at + i) & 0x3f);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[length] || !is_code_point(value)) return std::nullopt;
  at += length;
  return value;
}

size_t find_invalid_utf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = 0;
  while (at < text.size()) {
    uint64_t block = kHighBits;
    if (text.size() - at >= sizeof block) std::memcpy(&block, text.data() + at, sizeof block);
    if ((block & kHighBits) == 0) {
      at += sizeof block;
    } else if (!next_code_point(text, at)) {
      break;
    }
  }
  return at;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | ((code_point >> shift) & 0x3f));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xc0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xe0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace weft
