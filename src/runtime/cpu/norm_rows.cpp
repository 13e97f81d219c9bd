#include "runtime/cpu/norm_rows.h"

#include <cmath>

#include "runtime/cpu/simd.h"

namespace weft {

namespace {

WEFT_CLONES float sum_row(const float* x, int64_t n) {
  return lane_sum(
      n, [&](int64_t i) { return lanes_at(x + i); }, [&](int64_t i) { return x[i]; });
}

// Sum of (x - mean)^2.
WEFT_CLONES float square_sum_row(const float* x, float mean, int64_t n) {
  return lane_sum(
      n,
      [&](int64_t i) {
        const Lanes d = lanes_at(x + i) - mean;
        return d * d;
      },
      [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
}

}  // namespace

WEFT_CLONES float dot_normalized_row(const float* dy, const float* w, const float* x,
                                     RowStats stats, int64_t n) {
  return lane_sum(
      n,
      [&](int64_t i) {
        return lanes_at(dy + i) * lanes_at(w + i) * ((lanes_at(x + i) - stats.mean) * stats.rstd);
      },
      [&](int64_t i) { return dy[i] * w[i] * ((x[i] - stats.mean) * stats.rstd); });
}

WEFT_CLONES void normalize_row(const float* x, const float* w, const float* b, RowStats stats,
                               int64_t n, float* y) {
  if (b == nullptr) {
    WEFT_VECTORIZE
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - stats.mean) * stats.rstd * w[i];
  } else {
    WEFT_VECTORIZE
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - stats.mean) * stats.rstd * w[i] + b[i];
  }
}

WEFT_CLONES void norm_grad_row(const float* dy, const float* x, const float* w, RowStats stats,
                               float mean_dot, float mean_normalized_dot, int64_t n, float* dx,
                               float* dw) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const float h = (x[i] - stats.mean) * stats.rstd;
    const float d = dy[i];
    dw[i] += d * h;
    dx[i] = stats.rstd * (d * w[i] - mean_dot - h * mean_normalized_dot);
  }
}

RowStats stats_of(const float* x, int64_t n, float eps, Centered centered) {
  const float length = static_cast<float>(n);
  RowStats stats;
  if (centered == Centered::Yes) stats.mean = sum_row(x, n) / length;
  const float variance = square_sum_row(x, stats.mean, n) / length;
  stats.rstd = 1.0f / std::sqrt(variance + eps);
  return stats;
}

}  // namespace weft
