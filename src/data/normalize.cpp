// Decompose, sort combining marks, compose. Text below U+0300 is already in form C.
#include "data/normalize.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "data/utf8.h"

namespace weft {

namespace {

constexpr char32_t kFirstChanged = 0x300;  // below it nothing composes or reorders
constexpr char32_t kSyllable = 0xac00, kLead = 0x1100, kVowel = 0x1161, kTrail = 0x11a7;
constexpr char32_t kVowels = 21, kTrails = 28, kSyllables = 19 * kVowels * kTrails;

struct Parts {
  char32_t first;
  char32_t second;  // 0: none
};

class Tables {
 public:
  static const Tables& get() {
    static const Tables tables;
    return tables;
  }

  uint8_t combining_class(char32_t code_point) const {
    if (code_point < kFirstChanged) return 0;
    const auto ranges = combining_ranges();
    const auto after =
        std::upper_bound(ranges.begin(), ranges.end(), code_point,
                         [](char32_t c, const CombiningRange& range) { return c < range.first; });
    if (after == ranges.begin()) return 0;
    const CombiningRange& range = *std::prev(after);
    return code_point <= range.last ? range.combining_class : 0;
  }

  // Appends the full canonical decomposition.
  void decompose(char32_t code_point, std::vector<char32_t>& out) const {
    if (code_point - kSyllable < kSyllables) {
      const char32_t index = code_point - kSyllable;
      out.push_back(kLead + index / (kVowels * kTrails));
      out.push_back(kVowel + index / kTrails % kVowels);
      if (index % kTrails != 0) out.push_back(kTrail + index % kTrails);
      return;
    }
    const auto found = parts_.find(code_point);
    if (found == parts_.end()) {
      out.push_back(code_point);
      return;
    }
    decompose(found->second.first, out);
    if (found->second.second != 0) decompose(found->second.second, out);
  }

  // The character that two others compose to, if any.
  std::optional<char32_t> compose(char32_t first, char32_t second) const {
    if (first - kLead < 19 && second - kVowel < kVowels) {
      return kSyllable + ((first - kLead) * kVowels + second - kVowel) * kTrails;
    }
    const bool open = first - kSyllable < kSyllables && (first - kSyllable) % kTrails == 0;
    if (open && second > kTrail && second - kTrail < kTrails) return first + (second - kTrail);
    const auto found = composed_.find(uint64_t{first} << 21 | second);
    if (found == composed_.end()) return std::nullopt;
    return found->second;
  }

 private:
  Tables() {
    constexpr uint64_t kPoint = (uint64_t{1} << 21) - 1;
    for (const uint64_t packed : packed_decompositions()) {
      const auto code_point = static_cast<char32_t>(packed >> 42 & kPoint);
      const Parts parts{static_cast<char32_t>(packed >> 21 & kPoint),
                        static_cast<char32_t>(packed & kPoint)};
      parts_.emplace(code_point, parts);
      if (packed >> 63 != 0) composed_.emplace(packed & (kPoint << 21 | kPoint), code_point);
    }
  }

  std::unordered_map<char32_t, Parts> parts_;
  std::unordered_map<uint64_t, char32_t> composed_;
};

// Sorts each run of marks by combining class, keeping the order within a class.
void order_marks(std::vector<char32_t>& text, const Tables& tables) {
  for (size_t begin = 0; begin < text.size();) {
    if (tables.combining_class(text[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && tables.combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<int64_t>(begin),
                     text.begin() + static_cast<int64_t>(end), [&](char32_t a, char32_t b) {
                       return tables.combining_class(a) < tables.combining_class(b);
                     });
    begin = end;
  }
}

// Composes each character with the last starter before it unless something blocks it.
void compose_all(std::vector<char32_t>& text, const Tables& tables) {
  size_t kept = 0;
  std::optional<size_t> starter;
  int last_class = -1;  // of the previous character, -1 right after the starter
  for (const char32_t code_point : text) {
    const int combining = tables.combining_class(code_point);
    if (starter && last_class < combining) {
      const auto composed = tables.compose(text[*starter], code_point);
      if (composed) {
        text[*starter] = *composed;
        continue;
      }
    }
    if (combining == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = combining;
    }
    text[kept++] = code_point;
  }
  text.resize(kept);
}

bool is_plain(std::string_view text) {
  // U+0300 and above start with a byte of 0xCC or more.
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
}

}  // namespace

std::string normalize_nfc(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  const Tables& tables = Tables::get();
  std::vector<char32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    tables.decompose(next_code_point(text, at).value(), points);
  }
  order_marks(points, tables);
  compose_all(points, tables);
  std::string normal;
  normal.reserve(text.size());
  for (const char32_t code_point : points) append_utf8(normal, code_point);
  return normal;
}

}  // namespace weft
