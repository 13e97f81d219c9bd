// Tokenizes the text of a plan.
#include "plan/scanner.h"

#include <cctype>

#include "base/error.h"
#include "graph/op.h"

namespace weft {
namespace {

bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
}

bool is_number_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '+';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The end of the quoted string that starts at `open`, one past its closing quote, or npos.
size_t end_of_quoted(std::string_view text, size_t open) {
  for (size_t i = open + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::string Scanner::word() {
  skip_space();
  size_t length = 0;
  while (length < rest_.size() && is_word_char(rest_[length])) ++length;
  if (length == 0) expected("a name");
  return std::string(take(length));
}

int64_t Scanner::integer() {
  skip_space();
  size_t length = !rest_.empty() && rest_[0] == '-' ? 1 : 0;
  while (length < rest_.size() && is_digit(rest_[length])) ++length;
  const auto value = parse_int(rest_.substr(0, length));
  if (!value) expected("a whole number");
  take(length);
  return *value;
}

double Scanner::number() {
  skip_space();
  size_t length = 0;
  while (length < rest_.size() && is_number_char(rest_[length])) ++length;
  const auto value = parse_double(rest_.substr(0, length));
  if (!value) expected("a number");
  take(length);
  return *value;
}

int64_t Scanner::numbered(char letter) {
  expect(std::string_view(&letter, 1));
  if (rest_.empty() || !is_digit(rest_[0])) expected("a number");
  return integer();
}

std::string Scanner::quoted() {
  skip_space();
  const size_t end =
      rest_.empty() || rest_[0] != '"' ? std::string_view::npos : end_of_quoted(rest_, 0);
  if (end == std::string_view::npos) expected("a string in double quotes");
  return std::get<std::string>(parse_attr(take(end), Attr(std::string())));
}

std::string_view Scanner::type() {
  skip_space();
  size_t close = rest_.find(']');
  while (close != std::string_view::npos && rest_.substr(close + 1).starts_with(" @")) {
    close = rest_.find(')', close);
  }
  if (close == std::string_view::npos) expected("a type such as f32[2,3]");
  return take(close + 1);
}

std::string_view Scanner::literal() {
  skip_space();
  int64_t depth = 0;
  size_t i = 0;
  while (i < rest_.size()) {
    const char c = rest_[i];
    if (c == '"') {
      i = end_of_quoted(rest_, i);
      if (i == std::string_view::npos) expected("a string in double quotes");
      continue;
    }
    if (depth == 0 && (c == ',' || c == ')')) break;
    if (c == '[') ++depth;
    if (c == ']') --depth;
    ++i;
  }
  return trim(take(i));
}

std::string Scanner::rest() {
  return std::string(trim(take(rest_.size())));
}

bool Scanner::next_is(std::string_view token) {
  skip_space();
  return rest_.starts_with(token);
}

bool Scanner::accept(std::string_view token) {
  if (!next_is(token)) return false;
  take(token.size());
  return true;
}

void Scanner::expect(std::string_view token) {
  if (!accept(token)) expected(cat("\"", token, "\""));
}

void Scanner::end() {
  skip_space();
  if (!rest_.empty()) expected("the end of the line");
}

void Scanner::skip_space() {
  while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0) take(1);
}

std::string_view Scanner::take(size_t length) {
  const std::string_view taken = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return taken;
}

void Scanner::expected(std::string_view what) const {
  throw UserError(ExitCode::InputFile,
                  rest_.empty()
                      ? cat("the line ends where ", what, " is expected")
                      : cat("\"", rest_.substr(0, 24), "\" found where ", what, " is expected"));
}

}  // namespace weft
