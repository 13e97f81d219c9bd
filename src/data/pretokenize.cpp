// One scanner per pattern. Alternatives are tried in the order of the expression, which is written
// above each scanner.
#include "data/pretokenize.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/unicode.h"
#include "data/utf8.h"

namespace weft {

namespace {

constexpr std::array kPatterns = {SplitPattern::Gpt2, SplitPattern::Llama3, SplitPattern::Qwen2,
                                  SplitPattern::DeepSeek3, SplitPattern::O200k};

// Known spellings; the first one of a pattern is the one written to files.
struct KnownRegex {
  SplitPattern pattern;
  const char* text;
};
constexpr KnownRegex kKnown[] = {
    {SplitPattern::Gpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::Gpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::Llama3, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                           R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::Llama3, R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3})"
                           R"(| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitPattern::Qwen2, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                          R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::O200k, R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
                          R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
                          R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
                          R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
                          R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

// DeepSeek's three expressions: digits; Chinese characters and kana; the rest.
constexpr const char* kDeepSeekDigits = R"(\p{N}{1,3})";
constexpr const char* kDeepSeekHan =
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+";
constexpr const char* kDeepSeekRest =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)re"
    R"re(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

struct Char {
  char32_t value = 0;
  CharClass char_class = CharClass::Other;
  size_t size = 0;  // 0: end of text
};

bool is_newline(const Char& c) {
  return c.value == U'\n' || c.value == U'\r';
}

bool is_latin(const Char& c) {
  return (c.value >= U'a' && c.value <= U'z') || (c.value >= U'A' && c.value <= U'Z');
}

// Reads characters of valid UTF-8.
class Text {
 public:
  explicit Text(std::string_view text) : text_(text), table_(CharTable::get()) {}

  size_t size() const { return text_.size(); }

  Char operator()(size_t at) const {
    if (at >= text_.size()) return {};
    const auto byte = [&](size_t i) {
      return static_cast<char32_t>(static_cast<unsigned char>(text_[at + i]));
    };
    const char32_t b = byte(0);
    if (b < 0x80) return {b, table_[b], 1};
    // The search for a split position runs before the text is validated.
    const size_t size = b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
    if (text_.size() - at < size) return {b, CharClass::Other, 1};
    if (size == 2) return make((b & 0x1f) << 6 | (byte(1) & 0x3f), 2);
    if (size == 3) return make((b & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3);
    const char32_t tail = (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
    return make(std::min<char32_t>((b & 0x07) << 18 | tail, kMaxCodePoint), 4);
  }

 private:
  Char make(char32_t value, size_t size) const { return {value, table_[value], size}; }

  std::string_view text_;
  const CharTable& table_;
};

// The end of the wanted characters from `at` on, at most `most` of them.
template <class Look, class Wanted>
size_t run(const Look& look, size_t at, Wanted wanted, size_t most = SIZE_MAX) {
  for (size_t count = 0; count < most; ++count) {
    const Char c = look(at);
    if (c.size == 0 || !wanted(c)) break;
    at += c.size;
  }
  return at;
}

bool is_letter(const Char& c) {
  return is_letter(c.char_class);
}
bool is_number(const Char& c) {
  return c.char_class == CharClass::Number;
}
bool is_space(const Char& c) {
  return c.char_class == CharClass::Space;
}
bool is_symbol(const Char& c) {
  return c.char_class == CharClass::Symbol;
}
bool is_letter_or_mark(const Char& c) {
  return is_letter(c) || c.char_class == CharClass::Mark;
}
// [^\s\p{L}\p{N}]
bool is_rest(const Char& c) {
  return c.size > 0 && !is_letter(c) && !is_number(c) && !is_space(c);
}

enum class Case { Exact, Ignored };

// Matches 's 't 're 've 'm 'll 'd after an apostrophe at `at`; 0 when there is none.
size_t contraction(const Text& look, size_t at, Case letters) {
  const auto letter = [&](size_t i) -> char32_t {
    const char32_t c = look(i).value;
    if (letters == Case::Exact) return c;
    if (c == U'\u017f') return U's';  // long s folds to s
    return c >= U'A' && c <= U'Z' ? c + 32 : c;
  };
  const size_t first = at + 1;
  switch (letter(first)) {
    case U's':
      return first + look(first).size;
    case U't':
    case U'm':
    case U'd':
      return first + 1;
    case U'r':
    case U'v':
      return letter(first + 1) == U'e' ? first + 2 : 0;
    case U'l':
      return letter(first + 1) == U'l' ? first + 2 : 0;
    default:
      return 0;
  }
}

// \s+(?!\S)|\s+ : all white space at the end of the text, else all but its last character.
template <class Look>
size_t spaces(const Look& look, size_t at) {
  size_t last = at;
  size_t end = at;
  for (Char c = look(at); c.size > 0 && is_space(c); c = look(end)) {
    last = end;
    end += c.size;
  }
  return last == at || look(end).size == 0 ? end : last;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last line end in the white space, if any.
template <class Look>
size_t lines_or_spaces(const Look& look, size_t at) {
  size_t after_line = at;
  size_t end = at;
  for (Char c = look(at); c.size > 0 && is_space(c); c = look(end)) {
    end += c.size;
    if (is_newline(c)) after_line = end;
  }
  return after_line > at ? after_line : spaces(look, at);
}

// 's|...|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t next_gpt2(const Text& look, size_t at) {
  const Char c = look(at);
  if (c.value == U'\'') {
    const size_t end = contraction(look, at, Case::Exact);
    if (end > 0) return end;
  }
  const size_t begin = c.value == U' ' ? at + 1 : at;
  const Char first = look(begin);
  if (first.size == 0) return begin;
  if (is_letter(first)) return run(look, begin, is_letter);
  if (is_number(first)) return run(look, begin, is_number);
  if (is_rest(first)) return run(look, begin, is_rest);
  return spaces(look, at);
}

// (?i:'s|...|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
size_t next_llama3(const Text& look, size_t at, size_t digits) {
  const Char c = look(at);
  if (c.value == U'\'') {
    const size_t end = contraction(look, at, Case::Ignored);
    if (end > 0) return end;
  }
  if (is_letter(c)) return run(look, at, is_letter);
  if (is_number(c)) return run(look, at, is_number, digits);
  const Char next = look(at + c.size);
  if (!is_newline(c) && is_letter(next)) return run(look, at + c.size, is_letter);
  const size_t begin = c.value == U' ' ? at + 1 : at;
  if (is_rest(look(begin))) return run(look, run(look, begin, is_rest), is_newline);
  return lines_or_spaces(look, at);
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}]
bool begins_o200k(const Char& c) {
  return is_letter_or_mark(c) && c.char_class != CharClass::LowerLetter;
}
bool ends_o200k(const Char& c) {
  return is_letter_or_mark(c) && c.char_class != CharClass::UpperLetter;
}

// begins* ends+ at `at`, or `at` if it does not match. If nothing after the first run can end the
// word, the run backtracks to its last letter that can.
size_t lower_o200k(const Text& look, size_t at) {
  size_t end = at;
  size_t last = at;  // after the last character that may end a word
  for (Char c = look(at); c.size > 0 && begins_o200k(c); c = look(end)) {
    end += c.size;
    if (ends_o200k(c)) last = end;
  }
  const size_t lower = run(look, end, ends_o200k);
  return lower > end ? lower : last;
}

// A word of letters, by the first alternative that matches; `at` if none does.
size_t word_o200k(const Text& look, size_t at) {
  const Char c = look(at);
  const bool prefix = !is_newline(c) && !is_letter(c) && !is_number(c);
  const size_t after = at + c.size;
  size_t end = prefix ? lower_o200k(look, after) : at;
  if (prefix && end > after) return end;
  end = lower_o200k(look, at);
  if (end > at) return end;
  end = prefix ? run(look, after, begins_o200k) : at;
  if (prefix && end > after) return end;
  return run(look, at, begins_o200k);
}

// x?begins*ends+c?|x?begins+ends*c?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+ with x = [^\r\n\p{L}\p{N}] and c = (?i:'s|...|'d)
size_t next_o200k(const Text& look, size_t at) {
  const size_t word = word_o200k(look, at);
  if (word > at) {
    const size_t end = look(word).value == U'\'' ? contraction(look, word, Case::Ignored) : 0;
    return std::max(word, end);
  }
  const Char c = look(at);
  if (is_number(c)) return run(look, at, is_number, 3);
  const size_t begin = c.value == U' ' ? at + 1 : at;
  if (!is_rest(look(begin))) return lines_or_spaces(look, at);
  return run(look, run(look, begin, is_rest),
             [](const Char& end) { return is_newline(end) || end.value == U'/'; });
}

bool is_deepseek_han(const Char& c) {
  return (c.value >= 0x4e00 && c.value <= 0x9fa5) || (c.value >= 0x3040 && c.value <= 0x30ff);
}

// kDeepSeekRest at `at`, or `at` if it does not match.
template <class Look>
size_t match_deepseek_rest(const Look& look, size_t at) {
  const Char c = look(at);
  const Char next = look(at + c.size);
  if (c.value < 0x80 && is_symbol(c) && is_latin(next)) return run(look, at + 1, is_latin);
  if (is_letter_or_mark(c)) return run(look, at, is_letter_or_mark);
  if (!is_newline(c) && !is_symbol(c) && is_letter_or_mark(next)) {
    return run(look, at + c.size, is_letter_or_mark);
  }
  const size_t begin = c.value == U' ' ? at + 1 : at;
  if (is_symbol(look(begin))) return run(look, run(look, begin, is_symbol), is_newline);
  return is_space(c) ? lines_or_spaces(look, at) : at;
}

// The first two expressions isolate digits and Chinese, so for the third one the text ends before
// them. What it does not match stays in one word until it matches again.
size_t next_deepseek3(const Text& look, size_t at) {
  const Char c = look(at);
  if (is_number(c)) return run(look, at, is_number, 3);
  if (is_deepseek_han(c)) return run(look, at, is_deepseek_han);
  const auto look_inside = [&](size_t i) {
    const Char inside = look(i);
    return is_number(inside) || is_deepseek_han(inside) ? Char{} : inside;
  };
  const size_t end = match_deepseek_rest(look_inside, at);
  if (end > at) return end;
  size_t gap = at + c.size;
  for (Char next = look_inside(gap); next.size > 0; next = look_inside(gap)) {
    if (match_deepseek_rest(look_inside, gap) > gap) break;
    gap += next.size;
  }
  return gap;
}

// Some files contain literal line ends in their expressions where others write \r and \n.
std::string with_escapes(std::string_view regex) {
  std::string text;
  for (const char c : regex) {
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\r') {
      text += "\\r";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

const char* name_of(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::Gpt2:
      return "gpt2";
    case SplitPattern::Llama3:
      return "llama3";
    case SplitPattern::Qwen2:
      return "qwen2";
    case SplitPattern::DeepSeek3:
      return "deepseek3";
    case SplitPattern::O200k:
      return "o200k";
  }
  CHECK(false, static_cast<int>(pattern));
}

std::string split_names() {
  std::vector<std::string> names;
  for (const SplitPattern pattern : kPatterns) names.emplace_back(name_of(pattern));
  return join(names, ", ");
}

SplitPattern split_pattern(std::string_view name) {
  for (const SplitPattern pattern : kPatterns) {
    if (name == name_of(pattern)) return pattern;
  }
  throw UserError(ExitCode::Config, cat("split pattern ", in_quotes(name),
                                        " is unknown; use one of ", split_names()));
}

SplitPattern find_split_pattern(std::span<const std::string> regexes, std::string_view where) {
  std::vector<std::string> texts;
  for (const std::string& regex : regexes) texts.push_back(with_escapes(regex));
  if (texts == split_regexes(SplitPattern::DeepSeek3)) return SplitPattern::DeepSeek3;
  for (const std::string& text : texts) {
    const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                     [&](const KnownRegex& k) { return k.text == text; });
    INPUT_CHECK(known != std::end(kKnown), where, ": split pattern ", in_quotes(text),
                " is unknown; Weft has those of GPT-2, Llama 3, Qwen 2, DeepSeek 3 and GPT-4o");
    if (texts.size() == 1) return known->pattern;
  }
  throw UserError(ExitCode::InputFile, cat(where, ": ", texts.size(),
                                           " split patterns in a row, expected one, or the three "
                                           "of DeepSeek 3"));
}

std::vector<std::string> split_regexes(SplitPattern pattern) {
  if (pattern == SplitPattern::DeepSeek3) return {kDeepSeekDigits, kDeepSeekHan, kDeepSeekRest};
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const KnownRegex& k) { return k.pattern == pattern; });
  return {known->text};
}

size_t next_word(SplitPattern pattern, std::string_view text, size_t at) {
  const Text look(text);
  switch (pattern) {
    case SplitPattern::Gpt2:
      return next_gpt2(look, at);
    case SplitPattern::Llama3:
      return next_llama3(look, at, 3);
    case SplitPattern::Qwen2:
      return next_llama3(look, at, 1);
    case SplitPattern::DeepSeek3:
      return next_deepseek3(look, at);
    case SplitPattern::O200k:
      return next_o200k(look, at);
  }
  CHECK(false, static_cast<int>(pattern));
}

bool is_certain_word_end(std::string_view text, size_t at) {
  if (at == 0 || at >= text.size() || (text[at] & 0xc0) == 0x80) return false;
  size_t begin = at - 1;
  while (begin > 0 && (text[begin] & 0xc0) == 0x80) --begin;
  const Text look(text);
  const Char before = look(begin);
  const Char next = look(at);
  if (next.value == U' ') return is_letter(before) || is_number(before) || is_symbol(before);
  // DeepSeek keeps letters and punctuation of the kana blocks together.
  const bool ends = is_space(next) || (is_symbol(next) && next.value != U'\'');
  return ends && (is_letter(before) || is_number(before)) && !is_deepseek_han(next);
}

}  // namespace weft
