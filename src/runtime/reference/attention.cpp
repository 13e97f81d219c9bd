// Causal attention and its gradient, one query row at a time. With a tensor of positions, attention
// stays within documents.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

// Sizes and offsets in packed qkv [batch,time,(heads + 2 kv_heads) * head_dim].
struct Layout {
  int64_t batch, time, heads, kv_heads, head_dim, width;

  Layout(const Call& call, const Tensor& qkv)
      : batch(qkv.shape[0]),
        time(qkv.shape[1]),
        heads(call.int_attr("heads")),
        kv_heads(call.int_attr("kv_heads")),
        head_dim(qkv.shape[2] / (heads + 2 * kv_heads)),
        width(qkv.shape[2]) {}

  int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
  int64_t q(int64_t b, int64_t t, int64_t head) const {
    return (b * time + t) * width + head * head_dim;
  }
  int64_t k(int64_t b, int64_t t, int64_t head) const {
    return (b * time + t) * width + (heads + kv_head(head)) * head_dim;
  }
  int64_t v(int64_t b, int64_t t, int64_t head) const {
    return k(b, t, head) + kv_heads * head_dim;
  }
  int64_t y(int64_t b, int64_t t, int64_t head) const {
    return ((b * time + t) * heads + head) * head_dim;
  }
  int64_t lse(int64_t b, int64_t t, int64_t head) const { return (b * heads + head) * time + t; }
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

  double factor(int64_t b, int64_t head, int64_t i, int64_t j) const {
    if (!on_) return 1;
    const int64_t element = (head * layout_.time + i) * layout_.time + j;
    return mask_.factor(b, element, layout_.heads * layout_.time * layout_.time);
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
  FirstKeys(const Layout& layout, const Tensor* positions) : layout_(layout) {
    if (positions != nullptr) positions_ = read_ints(*positions);
  }

  int64_t of(int64_t b, int64_t i) const {
    return positions_.empty() ? 0 : i - positions_[static_cast<size_t>(b * layout_.time + i)];
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
      for (int64_t i = 0; i < layout.time; ++i) row(b, head, i);
    }
  }
}

void forward(const Launch& launch, const Tensor* positions, size_t rng_operand) {
  const Layout at(*launch.call, launch.operands[0]);
  const ProbabilityMask mask(launch, at, rng_operand);
  const FirstKeys first_keys(at, positions);
  const Values qkv = read(launch.operands[0]);
  const double scale = 1.0 / std::sqrt(static_cast<double>(at.head_dim));
  Values y(static_cast<size_t>(launch.results[0].elements()), 0.0);
  Values lse(static_cast<size_t>(launch.results[1].elements()));
  for_each_row(at, [&](int64_t b, int64_t head, int64_t i) {
    const int64_t first = first_keys.of(b, i);
    Values scores;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t j = first; j <= i; ++j) {
      scores.push_back(scale * dot(&qkv[static_cast<size_t>(at.q(b, i, head))],
                                   &qkv[static_cast<size_t>(at.k(b, j, head))], at.head_dim));
      largest = std::max(largest, scores.back());
    }
    double sum = 0;
    for (double score : scores) sum += std::exp(score - largest);
    const double log_sum = largest + std::log(sum);
    lse[static_cast<size_t>(at.lse(b, i, head))] = log_sum;
    for (int64_t j = first; j <= i; ++j) {
      const double probability = std::exp(scores[static_cast<size_t>(j - first)] - log_sum);
      add_scaled(&y[static_cast<size_t>(at.y(b, i, head))],
                 probability * mask.factor(b, head, i, j),
                 &qkv[static_cast<size_t>(at.v(b, j, head))], at.head_dim);
    }
  });
  write(launch.results[0], y);
  write(launch.results[1], lse);
}

void backward(const Launch& launch, const Tensor* positions, size_t rng_operand) {
  const Layout at(*launch.call, launch.operands[1]);
  const ProbabilityMask mask(launch, at, rng_operand);
  const FirstKeys first_keys(at, positions);
  const Values dy = read(launch.operands[0]);
  const Values qkv = read(launch.operands[1]);
  const Values y = read(launch.operands[2]);
  const Values lse = read(launch.operands[3]);
  const double scale = 1.0 / std::sqrt(static_cast<double>(at.head_dim));
  Values dqkv(qkv.size(), 0.0);
  for_each_row(at, [&](int64_t b, int64_t head, int64_t i) {
    const size_t q = static_cast<size_t>(at.q(b, i, head));
    const size_t out = static_cast<size_t>(at.y(b, i, head));
    // sum over j of p[j] dp[j], which equals dy . y also under dropout.
    const double mean_dp = dot(&dy[out], &y[out], at.head_dim);
    for (int64_t j = first_keys.of(b, i); j <= i; ++j) {
      const size_t k = static_cast<size_t>(at.k(b, j, head));
      const size_t v = static_cast<size_t>(at.v(b, j, head));
      const double score = scale * dot(&qkv[q], &qkv[k], at.head_dim);
      const double p = std::exp(score - lse[static_cast<size_t>(at.lse(b, i, head))]);
      const double factor = mask.factor(b, head, i, j);
      const double dp = factor * dot(&dy[out], &qkv[v], at.head_dim);
      const double ds = scale * p * (dp - mean_dp);
      add_scaled(&dqkv[q], ds, &qkv[k], at.head_dim);
      add_scaled(&dqkv[k], ds, &qkv[q], at.head_dim);
      add_scaled(&dqkv[v], p * factor, &dy[out], at.head_dim);
    }
  });
  write(launch.results[0], dqkv);
}

}  // namespace

void attention(const Launch& launch) {
  forward(launch, nullptr, 1);
}

void attention_grad(const Launch& launch) {
  backward(launch, nullptr, 4);
}

void document_attention(const Launch& launch) {
  forward(launch, &launch.operands[1], 2);
}

void document_attention_grad(const Launch& launch) {
  backward(launch, &launch.operands[4], 5);
}

}  // namespace weft::reference
