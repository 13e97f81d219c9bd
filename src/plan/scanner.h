// Reads one line of a plan's text from left to right and ignores white space between tokens. Throws
// UserError with the text found if it is not what was expected.
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
  // A letter and a number: "b12" for the letter b.
  int64_t numbered(char letter);
  // A string in double quotes, returned without them.
  std::string quoted();
  // "f32[2,8]" or "f32[2,8] @S(0:tp)".
  std::string_view type();
  // An attribute's value, up to the comma or parenthesis that ends it.
  std::string_view literal();
  // The rest of the line, trimmed.
  std::string rest();

  bool next_is(std::string_view token);
  bool accept(std::string_view token);
  void expect(std::string_view token);
  // Expects the end of the line.
  void end();

 private:
  void skip_space();
  std::string_view take(size_t length);
  [[noreturn]] void expected(std::string_view what) const;

  std::string_view rest_;
};

}  // namespace weft
