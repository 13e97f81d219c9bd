// Byte-pair merging: the ids of one word. Words of up to a few dozen bytes are scanned repeatedly
// for the best pair. Longer ones keep their pairs in a heap, so a word of n bytes costs O(n log n).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Two neighbours that become one token; earlier merges take precedence.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;

  bool operator==(const Merge&) const = default;
};

// The bytes of every token by id, in one block; ids may be missing.
class TokenTable {
 public:
  // Tokens as (id, bytes) pairs, ids distinct and not negative, bytes not empty.
  explicit TokenTable(std::span<const std::pair<int32_t, std::string>> tokens = {});

  // One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }

  // The bytes of an id below size(); empty for a missing one.
  std::string_view operator[](int64_t id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(begins_[i], begins_[i + 1] - begins_[i]);
  }

 private:
  std::string bytes_;
  std::vector<size_t> begins_;
};

// Ids by bytes, for the tokens of one table; of equal tokens the smallest id wins.
class TokenIndex {
 public:
  explicit TokenIndex(const TokenTable& tokens);

  // The id of these bytes; -1 when no token has them.
  int32_t find(const TokenTable& tokens, std::string_view bytes) const;

 private:
  std::vector<int32_t> slots_;  // open addressing, -1: free
};

// Two ids in one number, ordered by the left one.
inline uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Merges by their pair: open addressing in a flat array of power-of-two size.
class MergeTable {
 public:
  struct Entry {
    uint64_t pair = kFree;
    int32_t rank = 0;
    int32_t result = 0;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};

  explicit MergeTable(std::span<const Merge> merges);

  // The merge of a pair, or null.
  const Entry* find(int32_t left, int32_t right) const {
    const uint64_t pair = pair_key(left, right);
    for (size_t slot = start(pair);; slot = (slot + 1) & mask_) {
      const Entry& entry = entries_[slot];
      if (entry.pair == pair) return &entry;
      if (entry.pair == kFree) return nullptr;
    }
  }

 private:
  size_t start(uint64_t pair) const { return pair * 0x9e3779b97f4a7c15 >> shift_; }

  std::vector<Entry> entries_;
  size_t mask_ = 0;
  int shift_ = 0;
};

// Merges words. Holds scratch memory: use one per thread.
class WordMerger {
 public:
  explicit WordMerger(const MergeTable& merges) : merges_(merges) {}

  // Replaces the ids of a word's bytes with those of its tokens.
  void merge(std::vector<int32_t>& ids);

 private:
  struct Pair {
    int32_t rank;
    int32_t result;  // -1: the pair does not merge
  };
  struct Node {
    int32_t id;
    int32_t previous;
    int32_t next;  // -1: none
  };
  struct Candidate {
    int32_t rank;
    int32_t position;
    int32_t left;
    int32_t right;
    int32_t result;
  };

  Pair look_up(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& ids);
  void merge_long(std::vector<int32_t>& ids);
  void push(int32_t position);

  const MergeTable& merges_;
  std::vector<Pair> pairs_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace weft
