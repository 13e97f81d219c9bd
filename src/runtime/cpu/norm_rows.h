// One row of a norm or of its gradient, in f32.
#pragma once

#include <cstdint>

namespace weft {

struct RowStats {
  float mean = 0;
  float rstd = 0;
};

enum class Centered { Yes, No };

RowStats stats_of(const float* x, int64_t n, float eps, Centered centered);

// y = (x - mean) * rstd * w (+ b).
void normalize_row(const float* x, const float* w, const float* b, RowStats stats, int64_t n,
                   float* y);

// Sum of dy * w * (x - mean) * rstd.
float dot_normalized_row(const float* dy, const float* w, const float* x, RowStats stats,
                         int64_t n);

// With h = (x - mean) rstd: dw += dy h and dx = rstd (dy w - mean_dot - h mean_normalized_dot).
void norm_grad_row(const float* dy, const float* x, const float* w, RowStats stats, float mean_dot,
                   float mean_normalized_dot, int64_t n, float* dx, float* dw);

}  // namespace weft
