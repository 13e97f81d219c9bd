// Counts words, then merges pairs. Pairs wait in a heap by count; an entry with a stale count is
// pushed back with the current one when it reaches the top.
#include "data/train_bpe.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "data/byte_alphabet.h"
#include "data/text_source.h"
#include "data/tokenizer_json.h"

namespace weft {

namespace {

constexpr int64_t kBytes = 256;

using Counts = std::unordered_map<std::string, int64_t>;

// The pairs of all words, and the words as ids.
class PairTrainer {
 public:
  explicit PairTrainer(const std::vector<WordCount>& words) {
    std::array<int32_t, 256> ids{};
    const std::string order = bytes_in_alphabet_order();
    for (size_t i = 0; i < order.size(); ++i) {
      ids[static_cast<unsigned char>(order[i])] = static_cast<int32_t>(i);
    }
    for (const auto& [text, count] : words) {
      std::vector<int32_t> word;
      for (const char c : text) word.push_back(ids[static_cast<unsigned char>(c)]);
      words_.push_back(std::move(word));
      counts_.push_back(count);
      add_pairs(words_.size() - 1, 1);
    }
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  // The next merge into `result`; nullopt when no pair is left.
  std::optional<Merge> next(int32_t result) {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.key);
      const int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count != best.count) {
        if (count > 0) queue_.push({count, best.key});
        continue;
      }
      if (count == 0) continue;
      const Merge merge{static_cast<int32_t>(best.key >> 32), static_cast<int32_t>(best.key),
                        result};
      apply(merge, std::move(found->second.words));
      pairs_.erase(best.key);
      return merge;
    }
    return std::nullopt;
  }

 private:
  struct Pair {
    int64_t count = 0;
    std::vector<size_t> words;  // that contain it, or did; may repeat
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  // Adds or removes all pairs of a word.
  void add_pairs(size_t index, int64_t sign) {
    const std::vector<int32_t>& word = words_[index];
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      Pair& pair = pairs_[pair_key(word[i], word[i + 1])];
      pair.count += sign * counts_[index];
      if (sign > 0 && (pair.words.empty() || pair.words.back() != index)) {
        pair.words.push_back(index);
      }
    }
  }

  void apply(const Merge& merge, std::vector<size_t> where) {
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    for (const size_t index : where) {
      std::vector<int32_t>& word = words_[index];
      add_pairs(index, -1);
      size_t kept = 0;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool here =
            i + 1 < word.size() && word[i] == merge.left && word[i + 1] == merge.right;
        word[kept++] = here ? merge.result : word[i];
        if (here) ++i;
      }
      word.resize(kept);
      add_pairs(index, 1);
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != merge.result && word[i + 1] != merge.result) continue;
        const uint64_t key = pair_key(word[i], word[i + 1]);
        queue_.push({pairs_[key].count, key});
      }
    }
  }

  std::vector<std::vector<int32_t>> words_;
  std::vector<int64_t> counts_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
};

void count_words(std::string_view text, const TextOrigin& origin, SplitPattern pattern,
                 Counts& counts) {
  check_utf8(text, origin);
  for_each_word(pattern, text, origin, [&](std::string_view word) { ++counts[std::string(word)]; });
}

// A tokenizer of single bytes, which splits texts before there are merges.
BpeParts byte_parts(SplitPattern pattern) {
  BpeParts parts;
  parts.pattern = pattern;
  for (const char byte : bytes_in_alphabet_order()) {
    parts.tokens.emplace_back(static_cast<int32_t>(parts.tokens.size()), std::string(1, byte));
  }
  return parts;
}

std::vector<WordCount> count_files(const TrainBpeOptions& options) {
  const std::vector<SourceFile> files = look_at_files(list_text_files(options.inputs, ""));
  const BpeTokenizer bytes(byte_parts(options.pattern));
  const int threads = std::min(thread_count(options.threads), kWaveThreads);
  std::vector<Counts> counts(static_cast<size_t>(threads));
  std::vector<TextSpan> spans;
  for (const SourceFile& file : files) spans.push_back({&file, 0, file.size});
  ProgressBar bar("count", total_size(files), options.progress);
  int64_t done = 0;
  for (TextPlace place; place.span < spans.size();) {
    const std::vector<TextChunk> wave = take_wave(spans, place, bytes);
    parallel_for(threads, wave.size(), [&](int worker, size_t i) {
      visit_documents(
          wave[i].range, options.field, [&](std::string_view text, const TextOrigin& origin) {
            count_words(text, origin, options.pattern, counts[static_cast<size_t>(worker)]);
          });
    });
    for (const TextChunk& chunk : wave) done += chunk.range.end - chunk.range.begin;
    bar.update(done);
  }
  for (size_t i = 1; i < counts.size(); ++i) {
    for (const auto& [word, count] : counts[i]) counts[0][word] += count;
  }
  std::vector<WordCount> words(counts[0].begin(), counts[0].end());
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace

std::vector<Merge> train_merges(const std::vector<WordCount>& words, int64_t most) {
  PairTrainer trainer(words);
  std::vector<Merge> merges;
  while (static_cast<int64_t>(merges.size()) < most) {
    const auto merge =
        trainer.next(static_cast<int32_t>(kBytes) + static_cast<int32_t>(merges.size()));
    if (!merge) break;
    merges.push_back(*merge);
  }
  return merges;
}

BpeParts train_bpe(const TrainBpeOptions& options) {
  const auto special = static_cast<int64_t>(options.special.size());
  USER_CHECK(options.vocab_size >= kBytes + special && options.vocab_size <= kMaxTokenId,
             "command line: --vocab-size ", options.vocab_size, " is out of range, expected ",
             kBytes + special, " to ", kMaxTokenId, ": ", kBytes, " bytes and ", special,
             special == 1 ? " special token" : " special tokens");
  BpeParts parts = byte_parts(options.pattern);
  check_special_texts(options.special, parts.tokens);
  const std::vector<WordCount> words = count_files(options);
  parts.merges = train_merges(words, options.vocab_size - kBytes - special);
  for (const Merge& merge : parts.merges) {
    const auto bytes = [&](int32_t id) { return parts.tokens[static_cast<size_t>(id)].second; };
    parts.tokens.emplace_back(merge.result, bytes(merge.left) + bytes(merge.right));
  }
  check_special_texts(options.special, parts.tokens);
  for (const std::string& content : options.special) {
    const auto id = static_cast<int32_t>(parts.tokens.size() + parts.added.size());
    parts.added.push_back({.id = id, .content = content});
  }
  return parts;
}

}  // namespace weft
