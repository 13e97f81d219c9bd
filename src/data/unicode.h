// Character classes that tokenizers split by, derived from Unicode's general categories.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Letters with a case (title case counts as upper) and without; Symbol is punctuation and symbols;
// Space is the property White_Space; Other is everything else.
enum class CharClass : uint8_t {
  Other,
  Letter,
  UpperLetter,
  LowerLetter,
  Mark,
  Number,
  Symbol,
  Space
};

inline bool is_letter(CharClass c) {
  return c >= CharClass::Letter && c <= CharClass::LowerLetter;
}

struct CharRange {
  char32_t first;
  char32_t last;
  CharClass char_class;
};

// Every character that is not Other, in order, ignoring the case of letters; generated.
std::span<const CharRange> char_ranges();

// Every `step`th character from `first` to `last`.
struct CaseRange {
  char32_t first;
  char32_t last;
  char32_t step;
  CharClass char_class;
};

// The letters with a case; generated.
std::span<const CaseRange> case_ranges();

// Characters that are word characters but not letters, marks or numbers, and vice versa; generated.
struct WordRange {
  char32_t first;
  char32_t last;
};
std::span<const WordRange> word_exceptions();

// Whether a character is in `\w` of Unicode regular expressions (UTS #18): alphabetic, mark,
// decimal number, connector punctuation or join control.
bool is_word_character(char32_t code_point);

// Looks up classes in pages of 256 characters; equal pages are stored once.
class CharTable {
 public:
  // The only instance.
  static const CharTable& get();

  // The class of a code point, at most kMaxCodePoint.
  CharClass operator[](char32_t code_point) const {
    return classes_[size_t{pages_[code_point >> 8]} * 256 + (code_point & 0xff)];
  }

 private:
  CharTable();

  std::array<uint16_t, 0x1100> pages_{};
  std::vector<CharClass> classes_;
};

}  // namespace weft
