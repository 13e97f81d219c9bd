// Merges words; builds the tables for it.
#include "data/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace weft {

namespace {

constexpr size_t kShortWord = 64;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

size_t table_size(size_t entries) {
  return std::bit_ceil(std::max<size_t>(2 * entries, 16));
}

}  // namespace

TokenTable::TokenTable(std::span<const std::pair<int32_t, std::string>> tokens) {
  int32_t largest = -1;
  for (const auto& [id, bytes] : tokens) largest = std::max(largest, id);
  begins_.assign(static_cast<size_t>(largest) + 2, 0);
  for (const auto& [id, bytes] : tokens) {
    CHECK(id >= 0 && !bytes.empty() && begins_[static_cast<size_t>(id) + 1] == 0, "token ", id);
    begins_[static_cast<size_t>(id) + 1] = bytes.size();
  }
  for (size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
  bytes_.resize(begins_.back());
  for (const auto& [id, bytes] : tokens) {
    bytes.copy(bytes_.data() + begins_[static_cast<size_t>(id)], bytes.size());
  }
}

TokenIndex::TokenIndex(const TokenTable& tokens)
    : slots_(table_size(static_cast<size_t>(tokens.size())), -1) {
  for (int64_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty() || find(tokens, tokens[id]) >= 0) continue;
    size_t slot = hash_text(tokens[id]) & (slots_.size() - 1);
    while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<int32_t>(id);
  }
}

int32_t TokenIndex::find(const TokenTable& tokens, std::string_view bytes) const {
  for (size_t slot = hash_text(bytes) & (slots_.size() - 1);;
       slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot] < 0 || tokens[slots_[slot]] == bytes) return slots_[slot];
  }
}

MergeTable::MergeTable(std::span<const Merge> merges) : entries_(table_size(merges.size())) {
  mask_ = entries_.size() - 1;
  shift_ = 64 - std::countr_zero(entries_.size());
  int32_t rank = 0;
  for (const Merge& merge : merges) {
    const uint64_t pair = pair_key(merge.left, merge.right);
    size_t slot = start(pair);
    while (entries_[slot].pair != kFree && entries_[slot].pair != pair) slot = (slot + 1) & mask_;
    // Of a pair that is listed twice the last entry counts, as in Hugging Face's reader.
    entries_[slot] = {pair, rank++, merge.result};
  }
}

WordMerger::Pair WordMerger::look_up(int32_t left, int32_t right) const {
  const MergeTable::Entry* entry = merges_.find(left, right);
  return entry == nullptr ? Pair{kNoRank, -1} : Pair{entry->rank, entry->result};
}

void WordMerger::merge(std::vector<int32_t>& ids) {
  if (ids.size() <= kShortWord) {
    merge_short(ids);
  } else {
    merge_long(ids);
  }
}

void WordMerger::merge_short(std::vector<int32_t>& ids) {
  if (ids.size() < 2) return;
  pairs_.resize(ids.size() - 1);
  for (size_t i = 0; i + 1 < ids.size(); ++i) pairs_[i] = look_up(ids[i], ids[i + 1]);
  while (!pairs_.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < pairs_.size(); ++i) {
      if (pairs_[i].rank < pairs_[best].rank) best = i;
    }
    if (pairs_[best].rank == kNoRank) return;
    ids[best] = pairs_[best].result;
    const auto at = static_cast<int64_t>(best);
    ids.erase(ids.begin() + at + 1);
    pairs_.erase(pairs_.begin() + at);
    if (best > 0) pairs_[best - 1] = look_up(ids[best - 1], ids[best]);
    if (best < pairs_.size()) pairs_[best] = look_up(ids[best], ids[best + 1]);
  }
}

// Adds the pair that starts at a position, if it merges.
void WordMerger::push(int32_t position) {
  const Node& node = nodes_[static_cast<size_t>(position)];
  if (node.next < 0) return;
  const int32_t right = nodes_[static_cast<size_t>(node.next)].id;
  const Pair pair = look_up(node.id, right);
  if (pair.result < 0) return;
  heap_.push_back({pair.rank, position, node.id, right, pair.result});
}

void WordMerger::merge_long(std::vector<int32_t>& ids) {
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto push_heap = [&](int32_t position) {
    const size_t before = heap_.size();
    push(position);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), later);
  };
  const auto count = static_cast<int32_t>(ids.size());
  nodes_.resize(ids.size());
  heap_.clear();
  for (int32_t i = 0; i < count; ++i) {
    nodes_[static_cast<size_t>(i)] = {ids[static_cast<size_t>(i)], i - 1,
                                      i + 1 < count ? i + 1 : -1};
  }
  for (int32_t i = 0; i + 1 < count; ++i) push(i);
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Node& left = nodes_[static_cast<size_t>(best.position)];
    // A candidate whose neighbours have since merged is stale; a node that was merged away has id
    // -1.
    if (left.id != best.left || left.next < 0) continue;
    Node& right = nodes_[static_cast<size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = best.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) nodes_[static_cast<size_t>(left.next)].previous = best.position;
    if (left.previous >= 0) push_heap(left.previous);
    push_heap(best.position);
  }
  ids.clear();
  for (int32_t i = 0; i >= 0; i = nodes_[static_cast<size_t>(i)].next) {
    ids.push_back(nodes_[static_cast<size_t>(i)].id);
  }
}

}  // namespace weft
