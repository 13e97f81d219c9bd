// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

inline constexpr char32_t kMaxCodePoint = 0x10ffff;

// Whether a number is a character's code point: in range and not a surrogate.
constexpr bool is_code_point(char32_t value) {
  return value <= kMaxCodePoint && (value < 0xd800 || value > 0xdfff);
}

// Decodes the code point at byte `at` (below the size) and moves `at` past it; nullopt, with `at`
// unchanged, when the bytes are not valid.
std::optional<char32_t> next_code_point(std::string_view text, size_t& at);

// The first byte that is not part of valid UTF-8; the size when there is none.
size_t find_invalid_utf8(std::string_view text);

// Appends the bytes of a code point.
void append_utf8(std::string& text, char32_t code_point);

}  // namespace weft
