// Builds the class table from its ranges.
#include "data/unicode.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace weft {

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

CharTable::CharTable() {
  using Page = std::array<CharClass, 256>;
  std::unordered_map<char32_t, CharClass> cases;
  for (const CaseRange& letters : case_ranges()) {
    for (char32_t c = letters.first; c <= letters.last; c += letters.step) {
      cases.emplace(c, letters.char_class);
    }
  }
  std::map<Page, uint16_t> known;
  std::span<const CharRange> ranges = char_ranges();
  auto range = ranges.begin();
  for (size_t page = 0; page < pages_.size(); ++page) {
    Page classes{};
    for (size_t i = 0; i < classes.size(); ++i) {
      const auto code_point = static_cast<char32_t>(page * 256 + i);
      while (range != ranges.end() && range->last < code_point) ++range;
      const bool inside = range != ranges.end() && range->first <= code_point;
      classes[i] = inside ? range->char_class : CharClass::Other;
      if (classes[i] != CharClass::Letter) continue;
      const auto found = cases.find(code_point);
      if (found != cases.end()) classes[i] = found->second;
    }
    const auto [found, fresh] = known.emplace(classes, static_cast<uint16_t>(known.size()));
    if (fresh) classes_.insert(classes_.end(), classes.begin(), classes.end());
    pages_[page] = found->second;
  }
}

bool is_word_character(char32_t code_point) {
  const CharClass c = CharTable::get()[code_point];
  const bool usual = is_letter(c) || c == CharClass::Mark || c == CharClass::Number;
  const auto exceptions = word_exceptions();
  const auto after =
      std::upper_bound(exceptions.begin(), exceptions.end(), code_point,
                       [](char32_t point, const WordRange& range) { return point < range.first; });
  const bool exception = after != exceptions.begin() && code_point <= std::prev(after)->last;
  return usual != exception;
}

}  // namespace weft
