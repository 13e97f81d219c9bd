// Causal attention and its gradient, one query row at a time. With a tensor of positions, attention
// stays within documents. The queries may be a shard of the sequence over cp, and the keys one of
// its blocks, which adds to the result of earlier blocks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/attention_heads.h"
#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

// Operand numbers; q and kv are the same for packed qkv, and 0 means that there is no such operand
// for the others.
struct Places {
  size_t q = 0, kv = 0, positions = 0, coordinate = 0, rng = 0;
  bool adds = false;  // to y and lse, which follow kv
};

// The shard of the sequence that the queries of a call with q and kv are.
ContextShard query_shard(const Launch& launch, const Places& places) {
  const int64_t queries = launch.operands[places.q].shape[1];
  if (places.q == places.kv) return {queries};
  const int64_t blocks = launch.call->int_attr("blocks");
  const int64_t shards = blocks > 1 ? blocks : launch.operands[places.kv].shape[1] / queries;
  return {queries, shards, read_ints(launch.operands[places.coordinate]).at(0)};
}

// Sizes and offsets: of q in [batch,queries,...] and of kv in [batch,keys,...], or of both in
// packed qkv [batch,time,...].
struct Layout {
  bool packed;
  int64_t batch, queries, keys;
  AttentionHeads heads;
  double scale;
  int64_t chunk;
  ContextShard shard;      // of the sequence that the queries are
  ContextShard key_shard;  // that the keys are

  Layout(const Launch& launch, const Places& places)
      : packed(places.q == places.kv),
        batch(launch.operands[places.q].shape[0]),
        queries(launch.operands[places.q].shape[1]),
        keys(launch.operands[places.kv].shape[1]),
        heads(attention_heads(*launch.call, launch.operands[places.q].shape[2], packed)),
        scale(attention_scale(*launch.call, heads.dim)),
        chunk(launch.call->int_attr("chunk")),
        shard(query_shard(launch, places)),
        key_shard(packed ? shard
                         : keys_of(shard, launch.call->int_attr("blocks"),
                                   launch.call->int_attr("block"))) {}

  int64_t q(int64_t b, int64_t t, int64_t head) const {
    const int64_t width = packed ? heads.packed_width() : heads.q_width();
    return (b * queries + t) * width + head * heads.dim;
  }
  int64_t k(int64_t b, int64_t t, int64_t head) const {
    return kv_row(b, t) + head / heads.group() * heads.dim;
  }
  int64_t v(int64_t b, int64_t t, int64_t head) const {
    return kv_row(b, t) + heads.k_width() + head / heads.group() * heads.value_dim;
  }
  int64_t y(int64_t b, int64_t t, int64_t head) const {
    return (b * queries + t) * heads.y_width() + head * heads.value_dim;
  }
  int64_t lse(int64_t b, int64_t t, int64_t head) const {
    return (b * heads.q + head) * queries + t;
  }

 private:
  // The first element of k.
  int64_t kv_row(int64_t b, int64_t t) const {
    return packed ? (b * keys + t) * heads.packed_width() + heads.q_width()
                  : (b * keys + t) * heads.kv_width();
  }
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double* to, double factor, const double* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// Dropout factors of one row of probabilities; all 1 without dropout.
class ProbabilityMask {
 public:
  ProbabilityMask(const Launch& launch, const Layout& layout, size_t rng_operand)
      : layout_(layout),
        on_(launch.operands.size() > rng_operand),
        mask_(on_ ? read_ints(launch.operands[rng_operand]) : std::vector<int32_t>(4, 0),
              launch.call->double_attr("dropout"), launch.call->int_attr("stream")) {}

  // `i` and `j` are rows of the full sequence.
  double factor(int64_t b, int64_t head, int64_t i, int64_t j) const {
    if (!on_) return 1;
    const int64_t length = layout_.shard.full_size();
    return mask_.factor(b, (head * length + i) * length + j, layout_.heads.q * length * length);
  }

 private:
  const Layout& layout_;
  bool on_;
  DropoutMask mask_;
};

// The keys that a query sees.
class SeenKeys {
 public:
  // Without positions a sample is one document.
  SeenKeys(const Launch& launch, const Layout& layout, size_t positions) : layout_(layout) {
    if (positions > 0) positions_ = read_ints(launch.operands[positions]);
  }

  // Calls fn(number of the key in kv, its row in the full sequence).
  template <class Fn>
  void each(int64_t b, int64_t i, const Fn& fn) const {
    const int64_t last = layout_.shard.in_full(i);
    const int64_t position = positions_.empty() ? last : own_position(b, i);
    const int64_t first = last - keys_before(position, layout_.chunk);
    for (int64_t number = 0; number < layout_.key_shard.runs(); ++number) {
      const ContextRun run = layout_.key_shard.run(number);
      const int64_t end = std::min(last + 1, run.row + run.size);
      for (int64_t row = std::max(first, run.row); row < end; ++row) {
        fn(run.at + row - run.row, row);
      }
    }
  }

 private:
  int64_t own_position(int64_t b, int64_t i) const {
    return positions_[static_cast<size_t>(b * layout_.queries + i)];
  }

  const Layout& layout_;
  std::vector<int32_t> positions_;
};

// Calls row(b, head, i) for every query row.
template <class Row>
void for_each_row(const Layout& layout, Row row) {
  for (int64_t b = 0; b < layout.batch; ++b) {
    for (int64_t head = 0; head < layout.heads.q; ++head) {
      for (int64_t i = 0; i < layout.queries; ++i) row(b, head, i);
    }
  }
}

void forward(const Launch& launch, const Places& places) {
  const Layout at(launch, places);
  const ProbabilityMask mask(launch, at, places.rng);
  const SeenKeys seen(launch, at, places.positions);
  const Values q = read(launch.operands[places.q]);
  const Values kv = read(launch.operands[places.kv]);
  const double none = -std::numeric_limits<double>::infinity();
  Values y(static_cast<size_t>(launch.results[0].elements()), 0.0);
  Values lse(static_cast<size_t>(launch.results[1].elements()), none);
  if (places.adds) {
    y = read(launch.operands[places.kv + 1]);
    lse = read(launch.operands[places.kv + 2]);
  }
  for_each_row(at, [&](int64_t b, int64_t head, int64_t i) {
    double& row_lse = lse[static_cast<size_t>(at.lse(b, i, head))];
    double* row_y = &y[static_cast<size_t>(at.y(b, i, head))];
    Values scores;
    double largest = row_lse;
    seen.each(b, i, [&](int64_t j, int64_t) {
      scores.push_back(at.scale * dot(&q[static_cast<size_t>(at.q(b, i, head))],
                                      &kv[static_cast<size_t>(at.k(b, j, head))], at.heads.dim));
      largest = std::max(largest, scores.back());
    });
    if (largest == none) return;  // no keys so far
    double sum = std::exp(row_lse - largest);
    for (double score : scores) sum += std::exp(score - largest);
    const double log_sum = largest + std::log(sum);
    for (int64_t d = 0; d < at.heads.value_dim; ++d) row_y[d] *= std::exp(row_lse - log_sum);
    row_lse = log_sum;
    size_t next = 0;
    seen.each(b, i, [&](int64_t j, int64_t key_row) {
      const double probability = std::exp(scores[next++] - log_sum);
      add_scaled(row_y, probability * mask.factor(b, head, at.shard.in_full(i), key_row),
                 &kv[static_cast<size_t>(at.v(b, j, head))], at.heads.value_dim);
    });
  });
  write(launch.results[0], y);
  write(launch.results[1], lse);
}

// The results are dqkv, or dq and dkv.
void backward(const Launch& launch, const Places& places) {
  const Layout at(launch, places);
  const ProbabilityMask mask(launch, at, places.rng);
  const SeenKeys seen(launch, at, places.positions);
  const Values dy = read(launch.operands[0]);
  const Values queries = read(launch.operands[places.q]);
  const Values keys = read(launch.operands[places.kv]);
  const Values y = read(launch.operands[places.kv + 1]);
  const Values lse = read(launch.operands[places.kv + 2]);
  Values dqueries(queries.size(), 0.0), dkeys(at.packed ? 0 : keys.size(), 0.0);
  Values& dkv = at.packed ? dqueries : dkeys;
  for_each_row(at, [&](int64_t b, int64_t head, int64_t i) {
    const size_t q = static_cast<size_t>(at.q(b, i, head));
    const size_t out = static_cast<size_t>(at.y(b, i, head));
    // sum over j of p[j] dp[j], which equals dy . y also under dropout.
    const double mean_dp = dot(&dy[out], &y[out], at.heads.value_dim);
    seen.each(b, i, [&](int64_t j, int64_t key_row) {
      const size_t k = static_cast<size_t>(at.k(b, j, head));
      const size_t v = static_cast<size_t>(at.v(b, j, head));
      const double score = at.scale * dot(&queries[q], &keys[k], at.heads.dim);
      const double p = std::exp(score - lse[static_cast<size_t>(at.lse(b, i, head))]);
      const double factor = mask.factor(b, head, at.shard.in_full(i), key_row);
      const double dp = factor * dot(&dy[out], &keys[v], at.heads.value_dim);
      const double ds = at.scale * p * (dp - mean_dp);
      add_scaled(&dqueries[q], ds, &keys[k], at.heads.dim);
      add_scaled(&dkv[k], ds, &queries[q], at.heads.dim);
      add_scaled(&dkv[v], p * factor, &dy[out], at.heads.value_dim);
    });
  });
  write(launch.results[0], dqueries);
  if (!at.packed) write(launch.results[1], dkeys);
}

}  // namespace

void attention(const Launch& launch) {
  forward(launch, {.rng = 1});
}

void attention_grad(const Launch& launch) {
  backward(launch, {.q = 1, .kv = 1, .rng = 4});
}

void document_attention(const Launch& launch) {
  forward(launch, {.positions = 1, .rng = 2});
}

void document_attention_grad(const Launch& launch) {
  backward(launch, {.q = 1, .kv = 1, .positions = 4, .rng = 5});
}

void context_attention(const Launch& launch) {
  forward(launch, {.q = 0, .kv = 1, .positions = 2, .coordinate = 3, .rng = 4});
}

void context_attention_more(const Launch& launch) {
  forward(launch, {.q = 0, .kv = 1, .positions = 4, .coordinate = 5, .rng = 6, .adds = true});
}

void context_attention_grad(const Launch& launch) {
  backward(launch, {.q = 1, .kv = 2, .positions = 5, .coordinate = 6, .rng = 7});
}

}  // namespace weft::reference
