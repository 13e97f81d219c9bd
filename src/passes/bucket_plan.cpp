// Groups by name, size or list. Patterns are matched one dotted segment at a time.
#include "passes/bucket_plan.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/derived.h"
#include "passes/recompute_policy.h"

namespace weft {

namespace {

constexpr std::string_view kDigits = "0123456789";

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

size_t wildcards(std::string_view pattern) {
  const auto segments = split(pattern, '.');
  return static_cast<size_t>(std::count_if(segments.begin(), segments.end(), has_wildcard));
}

// Groups by a key; groups are in order of their first members.
template <class Key>
BucketPlan group_by(const std::vector<Key>& keys) {
  BucketPlan plan;
  std::map<Key, size_t> group;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto [found, is_new] = group.emplace(keys[i], plan.groups.size());
    if (is_new) plan.groups.emplace_back();
    plan.groups[found->second].push_back(i);
  }
  return plan;
}

// An entry of compile.buckets and its matches.
struct ManualEntry {
  std::string text;
  std::vector<std::string> patterns;  // combined with +
  size_t matched = 0;
  size_t won = 0;
};

std::vector<ManualEntry> read_entries(const Config& config) {
  std::vector<ManualEntry> entries;
  for (const std::string& given : config.compile.buckets) {
    const std::string text(trim(given));
    ManualEntry entry{.text = text, .patterns = split(text, '+')};
    for (std::string& pattern : entry.patterns) {
      pattern = trim(pattern);
      USER_CHECK(!pattern.empty(), describe_key(config, "compile.buckets"), ": \"", text,
                 "\" has an empty part, expected module paths separated by +");
      check_module_pattern(pattern, describe_key(config, "compile.buckets"));
      USER_CHECK(wildcards(pattern) == wildcards(entry.patterns.front()),
                 describe_key(config, "compile.buckets"), ": the parts of \"", text,
                 "\" differ in their wildcards, expected the same number in each; matches are "
                 "combined pairwise");
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

// The bucket, named within the entry, that an entry assigns to a parameter.
std::optional<std::string> match_entry(const ManualEntry& entry, const std::string& name) {
  for (const std::string& pattern : entry.patterns) {
    const auto match = match_module(pattern, name);
    if (match) return match->wildcard;
  }
  return std::nullopt;
}

void check_entries(const std::vector<ManualEntry>& entries, const Config& config) {
  for (const ManualEntry& entry : entries) {
    const std::string where = cat(describe_key(config, "compile.buckets"), ": \"", entry.text);
    USER_CHECK(entry.matched > 0, where, "\" matches no parameter; remove it");
    USER_CHECK(entry.won > 0, where,
               "\" only matches parameters that earlier entries take; move it up or remove it");
  }
}

}  // namespace

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

BucketPlan plan_as_given(std::span<const BucketItem> items,
                         const std::vector<std::vector<std::string>>& buckets) {
  std::map<std::string_view, size_t> index;
  for (size_t i = 0; i < items.size(); ++i) index.emplace(items[i].name, i);
  BucketPlan plan;
  size_t placed = 0;
  for (const std::vector<std::string>& names : buckets) {
    std::vector<size_t>& group = plan.groups.emplace_back();
    for (const std::string& name : names) {
      const auto found = index.find(name);
      CHECK(found != index.end(), "the given bucket of ", name, " has no parameter of that name");
      group.push_back(found->second);
      ++placed;
    }
  }
  CHECK(placed == items.size(), "the given buckets hold ", placed, " of ", items.size(),
        " parameters");
  return plan;
}

BucketPlan plan_each_alone(std::span<const BucketItem> items) {
  BucketPlan plan;
  for (size_t i = 0; i < items.size(); ++i) plan.groups.push_back({i});
  return plan;
}

BucketPlan plan_by_block(std::span<const BucketItem> items) {
  constexpr int64_t kBefore = -2;
  constexpr int64_t kAfter = -1;
  std::vector<int64_t> keys;
  int64_t outside = kBefore;
  for (const BucketItem& item : items) {
    const int64_t block = block_of(item.name);
    if (block >= 0) outside = kAfter;
    keys.push_back(block >= 0 ? block : outside);
  }
  return group_by(keys);
}

BucketPlan plan_by_size(std::span<const BucketItem> items, int64_t least) {
  BucketPlan plan;
  int64_t elements = least;  // as if a bucket had just been closed
  for (size_t i = 0; i < items.size(); ++i) {
    if (elements >= least) {
      plan.groups.emplace_back();
      elements = 0;
    }
    plan.groups.back().push_back(i);
    elements += items[i].elements;
  }
  if (elements < least && plan.groups.size() > 1) {
    const std::vector<size_t> rest = std::move(plan.groups.back());
    plan.groups.pop_back();
    plan.groups.back().insert(plan.groups.back().end(), rest.begin(), rest.end());
  }
  return plan;
}

BucketPlan plan_by_hand(std::span<const BucketItem> items, const Config& config) {
  std::vector<ManualEntry> entries = read_entries(config);
  std::vector<std::pair<size_t, std::string>> keys;
  size_t contested = 0;
  for (const BucketItem& item : items) {
    bool taken = false;
    bool claimed_again = false;
    for (size_t e = 0; e < entries.size(); ++e) {
      const auto name = match_entry(entries[e], item.name);
      if (!name) continue;
      ++entries[e].matched;
      claimed_again |= taken;
      if (taken) continue;
      taken = true;
      ++entries[e].won;
      keys.emplace_back(e, *name);
    }
    USER_CHECK(taken, describe_key(config, "compile.buckets"), ": parameter ", item.name,
               " is in no bucket; add an entry such as \"", split(item.name, '.').front(), "\"");
    contested += claimed_again ? 1 : 0;
  }
  check_entries(entries, config);
  BucketPlan plan = group_by(keys);
  if (contested > 0) {
    plan.note = cat(contested, contested == 1 ? " parameter matches" : " parameters match",
                    " several entries; the first one takes ", contested == 1 ? "it" : "them");
  }
  return plan;
}

}  // namespace weft
