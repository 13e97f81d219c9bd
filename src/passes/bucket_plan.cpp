// Groups by name, size or list.
#include "passes/bucket_plan.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/derived.h"
#include "graph/module_path.h"

namespace weft {

namespace {

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

constexpr int64_t kBefore = -2;
constexpr int64_t kAfter = -1;

// The block of each item, or whether it comes before the first one or after it.
std::vector<int64_t> blocks_of(std::span<const BucketItem> items) {
  std::vector<int64_t> blocks;
  int64_t outside = kBefore;
  for (const BucketItem& item : items) {
    const int64_t block = block_of(item.name);
    if (block >= 0) outside = kAfter;
    blocks.push_back(block >= 0 ? block : outside);
  }
  return blocks;
}

constexpr int64_t kMost = -1;  // instead of a kind: the one that most of a block is of

using Elements = std::map<int64_t, int64_t>;  // by kind

int64_t largest_kind(const Elements& elements) {
  return std::max_element(elements.begin(), elements.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// The bucket that is being filled with the parameters of one kind.
class SmallBucket {
 public:
  // Adds the elements of a block, to a new bucket if there are enough; returns its first block.
  int64_t add(int64_t block, int64_t elements) {
    if (last_ == block) return first_;
    const bool is_full = !last_ || elements_ + elements > kEnough;
    if (is_full) first_ = block;
    elements_ = is_full ? elements : elements_ + elements;
    last_ = block;
    return first_;
  }

 private:
  static constexpr int64_t kEnough = 1 << 20;  // the latency of a gather matters little then
  int64_t first_ = 0;
  std::optional<int64_t> last_;
  int64_t elements_ = 0;
};

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
      USER_CHECK(count_wildcards(pattern) == count_wildcards(entry.patterns.front()),
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
  const std::vector<int64_t> blocks = blocks_of(items);
  std::map<int64_t, Elements> elements;  // by block
  for (size_t i = 0; i < items.size(); ++i) {
    elements[blocks[i]][items[i].kind] += items[i].elements;
  }
  std::map<int64_t, SmallBucket> small;           // by kind
  std::vector<std::pair<int64_t, int64_t>> keys;  // kind, first block
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t block = blocks[i], kind = items[i].kind;
    const Elements& kinds = elements[block];
    const bool is_most = largest_kind(kinds) == kind;
    keys.emplace_back(is_most ? kMost : kind,
                      is_most ? block : small[kind].add(block, kinds.at(kind)));
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
