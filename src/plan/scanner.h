// Reads one line of a plan's text from left to right. White space between tokens is free; what is
// not as expected is a UserError that says what was found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

class Scanner {
 public:
  explicit Scanner(std::string_view line) : rest_(line) {}

  // Letters, digits, '_', '.' and '-'.
  std::string word();
  int64_t integer();
  double number();
  // "b12" for the letter b.
  int64_t numbered(char letter);
  // A text in double quotes, without them.
  std::string quoted();
  // "f32[2,8]".
  std::string_view type();
  // An attribute's value, up to the comma or parenthesis that ends it.
  std::string_view literal();
  // What is left, without white space at its ends.
  std::string rest();

  bool next_is(std::string_view token);
  bool accept(std::string_view token);
  void expect(std::string_view token);
  // The line has no more.
  void end();

 private:
  void skip_space();
  std::string_view take(size_t length);
  [[noreturn]] void expected(std::string_view what) const;

  std::string_view rest_;
};

}  // namespace weft
