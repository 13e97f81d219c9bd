// Causal attention and its gradient, one query row at a time. With a tensor of positions, attention
// stays within documents. The queries may be a shard of the sequence over cp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

// Operand numbers; q and kv are the same for packed qkv, and 0 means that there is no such operand
// for the others.
struct Places {
  size_t q = 0, kv = 0, positions = 0, coordinate = 0, rng = 0;
};

// Sizes and offsets: of q in [batch,queries,...] and of kv in [batch,keys,...], or of both in
// packed qkv [batch,time,(heads + 2 kv_heads) * head_dim].
struct Layout {
  bool packed;
  int64_t batch, queries, keys, heads, kv_heads, head_dim;
  ContextShard shard;  // of the sequence that the queries are

  Layout(const Launch& launch, const Places& places)
      : packed(places.q == places.kv),
        batch(launch.operands[places.q].shape[0]),
        queries(launch.operands[places.q].shape[1]),
        keys(launch.operands[places.kv].shape[1]),
        heads(launch.call->int_attr("heads")),
        kv_heads(launch.call->int_attr("kv_heads")),
        head_dim(launch.operands[places.q].shape[2] / (packed ? heads + 2 * kv_heads : heads)),
        shard{queries, keys / queries,
              packed ? 0 : read_ints(launch.operands[places.coordinate]).at(0)} {}

  int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
  int64_t q(int64_t b, int64_t t, int64_t head) const {
    const int64_t width = (packed ? heads + 2 * kv_heads : heads) * head_dim;
    return (b * queries + t) * width + head * head_dim;
  }
  int64_t k(int64_t b, int64_t t, int64_t head) const {
    const int64_t before = packed ? heads : 0;
    return ((b * keys + t) * (before + 2 * kv_heads) + before + kv_head(head)) * head_dim;
  }
  int64_t v(int64_t b, int64_t t, int64_t head) const {
    return k(b, t, head) + kv_heads * head_dim;
  }
  int64_t y(int64_t b, int64_t t, int64_t head) const {
    return ((b * queries + t) * heads + head) * head_dim;
  }
  int64_t lse(int64_t b, int64_t t, int64_t head) const { return (b * heads + head) * queries + t; }
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

  // `i` is the query's row in the full sequence.
  double factor(int64_t b, int64_t head, int64_t i, int64_t j) const {
    if (!on_) return 1;
    const int64_t element = (head * layout_.keys + i) * layout_.keys + j;
    return mask_.factor(b, element, layout_.heads * layout_.keys * layout_.keys);
  }

 private:
  const Layout& layout_;
  bool on_;
  DropoutMask mask_;
};

// The first key that a query sees.
class FirstKeys {
 public:
  // Without positions a sample is one document.
  FirstKeys(const Launch& launch, const Layout& layout, size_t positions) : layout_(layout) {
    if (positions > 0) positions_ = read_ints(launch.operands[positions]);
  }

  int64_t of(int64_t b, int64_t i) const {
    if (positions_.empty()) return 0;
    return layout_.shard.in_full(i) - positions_[static_cast<size_t>(b * layout_.queries + i)];
  }

 private:
  const Layout& layout_;
  std::vector<int32_t> positions_;
};

// Calls row(b, head, i) for every query row.
template <class Row>
void for_each_row(const Layout& layout, Row row) {
  for (int64_t b = 0; b < layout.batch; ++b) {
    for (int64_t head = 0; head < layout.heads; ++head) {
      for (int64_t i = 0; i < layout.queries; ++i) row(b, head, i);
    }
  }
}

void forward(const Launch& launch, const Places& places) {
  const Layout at(launch, places);
  const ProbabilityMask mask(launch, at, places.rng);
  const FirstKeys first_keys(launch, at, places.positions);
  const Values q = read(launch.operands[places.q]);
  const Values kv = read(launch.operands[places.kv]);
  const double scale = 1.0 / std::sqrt(static_cast<double>(at.head_dim));
  Values y(static_cast<size_t>(launch.results[0].elements()), 0.0);
  Values lse(static_cast<size_t>(launch.results[1].elements()));
  for_each_row(at, [&](int64_t b, int64_t head, int64_t i) {
    const int64_t first = first_keys.of(b, i), last = at.shard.in_full(i);
    Values scores;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t j = first; j <= last; ++j) {
      scores.push_back(scale * dot(&q[static_cast<size_t>(at.q(b, i, head))],
                                   &kv[static_cast<size_t>(at.k(b, j, head))], at.head_dim));
      largest = std::max(largest, scores.back());
    }
    double sum = 0;
    for (double score : scores) sum += std::exp(score - largest);
    const double log_sum = largest + std::log(sum);
    lse[static_cast<size_t>(at.lse(b, i, head))] = log_sum;
    for (int64_t j = first; j <= last; ++j) {
      const double probability = std::exp(scores[static_cast<size_t>(j - first)] - log_sum);
      add_scaled(&y[static_cast<size_t>(at.y(b, i, head))],
                 probability * mask.factor(b, head, last, j),
                 &kv[static_cast<size_t>(at.v(b, j, head))], at.head_dim);
    }
  });
  write(launch.results[0], y);
  write(launch.results[1], lse);
}

// The results are dqkv, or dq and dkv.
void backward(const Launch& launch, const Places& places) {
  const Layout at(launch, places);
  const ProbabilityMask mask(launch, at, places.rng);
  const FirstKeys first_keys(launch, at, places.positions);
  const Values dy = read(launch.operands[0]);
  const Values queries = read(launch.operands[places.q]);
  const Values keys = read(launch.operands[places.kv]);
  const Values y = read(launch.operands[places.kv + 1]);
  const Values lse = read(launch.operands[places.kv + 2]);
  const double scale = 1.0 / std::sqrt(static_cast<double>(at.head_dim));
  Values dqueries(queries.size(), 0.0), dkeys(at.packed ? 0 : keys.size(), 0.0);
  Values& dkv = at.packed ? dqueries : dkeys;
  for_each_row(at, [&](int64_t b, int64_t head, int64_t i) {
    const size_t q = static_cast<size_t>(at.q(b, i, head));
    const int64_t last = at.shard.in_full(i);
    const size_t out = static_cast<size_t>(at.y(b, i, head));
    // sum over j of p[j] dp[j], which equals dy . y also under dropout.
    const double mean_dp = dot(&dy[out], &y[out], at.head_dim);
    for (int64_t j = first_keys.of(b, i); j <= last; ++j) {
      const size_t k = static_cast<size_t>(at.k(b, j, head));
      const size_t v = static_cast<size_t>(at.v(b, j, head));
      const double score = scale * dot(&queries[q], &keys[k], at.head_dim);
      const double p = std::exp(score - lse[static_cast<size_t>(at.lse(b, i, head))]);
      const double factor = mask.factor(b, head, last, j);
      const double dp = factor * dot(&dy[out], &keys[v], at.head_dim);
      const double ds = scale * p * (dp - mean_dp);
      add_scaled(&dqueries[q], ds, &keys[k], at.head_dim);
      add_scaled(&dkv[k], ds, &queries[q], at.head_dim);
      add_scaled(&dkv[v], p * factor, &dy[out], at.head_dim);
    }
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

void context_attention_grad(const Launch& launch) {
  backward(launch, {.q = 1, .kv = 2, .positions = 5, .coordinate = 6, .rng = 7});
}

}  // namespace weft::reference
