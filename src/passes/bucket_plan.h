// Assigns parameters to buckets by compile.bucketing, from their names and sizes alone. The mode
// "auto" is in bucket_auto: it compares estimates of the full step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace weft {

// A parameter, in order of registration.
struct BucketItem {
  std::string name;
  int64_t elements = 0;
  int64_t kind = 0;  // only parameters of one kind can be merged
};

// Every item is in exactly one group. Members are in order of registration, groups in order of
// their first members.
struct BucketPlan {
  std::vector<std::vector<size_t>> groups;
  std::string note = {};  // a remark for the user; may be empty
};

// The given buckets, which must contain every item.
BucketPlan plan_as_given(std::span<const BucketItem> items,
                         const std::vector<std::vector<std::string>>& buckets);
BucketPlan plan_each_alone(std::span<const BucketItem> items);
// One bucket per "layers.N", one for the parameters registered before the first block, one for the
// rest. Of these, parameters of another kind than most, such as norm weights between those that tp
// shards, share a bucket with the ones of the blocks next to them as long as it is small.
BucketPlan plan_by_block(std::span<const BucketItem> items);
// Closes a bucket once it has at least `least` elements; a smaller remainder goes into the last
// bucket.
BucketPlan plan_by_size(std::span<const BucketItem> items, int64_t least);
// Follows compile.buckets. Throws UserError for an entry without a match or an item without an
// entry.
BucketPlan plan_by_hand(std::span<const BucketItem> items, const Config& config);

}  // namespace weft
