// Reads layer numbers and matches patterns one dotted segment at a time.
#include "graph/module_path.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "graph/names.h"

namespace weft {

namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kShortLayers = "l";

// "3.attention" for "layers.3.attention"; nothing outside blocks.
std::optional<std::string_view> inside_layers(std::string_view path) {
  if (!path.starts_with(names::kLayers)) return std::nullopt;
  path.remove_prefix(names::kLayers.size());
  if (!path.starts_with('.')) return std::nullopt;
  return path.substr(1);
}

// "[2-11]" at the start of a pattern.
struct NumberRange {
  int64_t low = 0;
  int64_t high = 0;
  size_t length = 0;  // in characters
};

std::optional<NumberRange> read_range(std::string_view pattern) {
  const size_t close = pattern.find(']');
  const std::string_view range = pattern.substr(1, close == std::string_view::npos ? 0 : close - 1);
  const size_t dash = range.find('-');
  const auto low = parse_int(range.substr(0, dash));
  const auto high = dash == std::string_view::npos ? low : parse_int(range.substr(dash + 1));
  if (!low || !high || *low > *high) return std::nullopt;
  return NumberRange{*low, *high, close + 1};
}

// For a pattern "[2-11]rest": whether text starts with a number in the range. Advances both past
// it.
bool take_number(std::string_view& pattern, std::string_view& text) {
  const std::optional<NumberRange> range = read_range(pattern);
  CHECK(range, pattern);
  const size_t digits = std::min(text.find_first_not_of(kDigits), text.size());
  const auto number = parse_int(text.substr(0, digits));
  if (!number || *number < range->low || *number > range->high) return false;
  pattern.remove_prefix(range->length);
  text.remove_prefix(digits);
  return true;
}

bool matches_segment(std::string_view pattern, std::string_view text) {
  while (!pattern.empty() && pattern.front() != '*') {
    if (pattern.front() == '[') {
      if (!take_number(pattern, text)) return false;
      continue;
    }
    if (text.empty() || (pattern.front() != '?' && pattern.front() != text.front())) return false;
    pattern.remove_prefix(1);
    text.remove_prefix(1);
  }
  if (pattern.empty()) return text.empty();
  pattern.remove_prefix(1);
  for (size_t skipped = 0; skipped <= text.size(); ++skipped) {
    if (matches_segment(pattern, text.substr(skipped))) return true;
  }
  return false;
}

bool has_wildcard(std::string_view segment) {
  return segment.find_first_of("*?[") != std::string_view::npos;
}

}  // namespace

std::string block_path(int64_t block) {
  return cat(names::kLayers, ".", block);
}

int64_t block_of(std::string_view path) {
  const std::optional<std::string_view> rest = inside_layers(path);
  return rest ? parse_int(rest->substr(0, rest->find('.'))).value_or(-1) : -1;
}

std::string short_path(std::string_view path) {
  const std::optional<std::string_view> rest = inside_layers(path);
  return rest ? cat(kShortLayers, *rest) : std::string(path);
}

std::string without_block(std::string_view name) {
  std::string out;
  for (const std::string& item : split(name, '.')) {
    if (!out.empty()) out += '.';
    const size_t digits = item.find_first_of(kDigits);
    const bool numbered = (digits == 0 || (digits == 1 && item.starts_with(kShortLayers))) &&
                          item.find_first_not_of(kDigits, digits) == std::string::npos;
    out += numbered ? item.substr(0, digits) + "*" : item;
  }
  return out;
}

size_t count_wildcards(std::string_view pattern) {
  const auto segments = split(pattern, '.');
  return static_cast<size_t>(std::count_if(segments.begin(), segments.end(), has_wildcard));
}

void check_module_pattern(std::string_view pattern, const std::string& subject) {
  for (size_t at = pattern.find('['); at != std::string_view::npos;
       at = pattern.find('[', at + 1)) {
    USER_CHECK(read_range(pattern.substr(at)), subject, ": ", in_quotes(pattern),
               " has no range of numbers after [, expected one such as [0-5]");
  }
}

std::optional<ModuleMatch> match_module(std::string_view pattern, std::string_view name) {
  const auto wanted = split(pattern, '.');
  const auto found = split(name, '.');
  if (found.size() < wanted.size()) return std::nullopt;
  std::vector<std::string> path;
  std::vector<std::string> wildcard;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!matches_segment(wanted[i], found[i])) return std::nullopt;
    path.push_back(found[i]);
    if (has_wildcard(wanted[i])) wildcard.push_back(found[i]);
  }
  return ModuleMatch{join(path, "."), join(wildcard, ".")};
}

}  // namespace weft
