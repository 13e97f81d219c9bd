// layer_norm, rms_norm and their gradients, a row at a time; the weight gradient is summed over
// chunks of rows.
#include <cmath>

#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/partials.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

struct RowStats {
  float mean = 0;
  float rstd = 0;
};

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

// Sum of dy * w.
WEFT_CLONES float dot_row(const float* dy, const float* w, int64_t n) {
  return lane_sum(
      n, [&](int64_t i) { return lanes_at(dy + i) * lanes_at(w + i); },
      [&](int64_t i) { return dy[i] * w[i]; });
}

// Sum of dy * w * (x - mean) * rstd.
WEFT_CLONES float dot_normalized_row(const float* dy, const float* w, const float* x,
                                     RowStats stats, int64_t n) {
  return lane_sum(
      n,
      [&](int64_t i) {
        return lanes_at(dy + i) * lanes_at(w + i) * ((lanes_at(x + i) - stats.mean) * stats.rstd);
      },
      [&](int64_t i) { return dy[i] * w[i] * ((x[i] - stats.mean) * stats.rstd); });
}

// y = (x - mean) * rstd * w (+ b).
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

// With h = (x - mean) rstd: dw += dy h and dx = rstd (dy w - mean_dot - h mean_normalized_dot).
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

enum class Centered { Yes, No };

RowStats stats_of(const float* x, int64_t n, float eps, Centered centered) {
  const float length = static_cast<float>(n);
  RowStats stats;
  if (centered == Centered::Yes) stats.mean = sum_row(x, n) / length;
  const float variance = square_sum_row(x, stats.mean, n) / length;
  stats.rstd = 1.0f / std::sqrt(variance + eps);
  return stats;
}

void launch_norm(const Launch& launch, Centered centered) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  float* mean = centered == Centered::Yes ? launch.results.at(1).as<float>() : nullptr;
  float* rstd = launch.results.back().as<float>();
  const int64_t n = row_length(x.shape);
  const int64_t rows = row_count(x.shape);
  const int64_t step = tile_rows(n);
  const float eps = static_cast<float>(launch.call->double_attr("eps"));
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    const float* w = load(launch.operands[1], 0, n, scratch);
    const float* b =
        launch.operands.size() > 2 ? load(launch.operands[2], 0, n, scratch + n) : nullptr;
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      const float* x_row = load(x, row * n, n, scratch + 2 * n);
      float* y_row = place(y, row * n, scratch + 3 * n);
      const RowStats stats = stats_of(x_row, n, eps, centered);
      if (mean != nullptr) mean[row] = stats.mean;
      rstd[row] = stats.rstd;
      normalize_row(x_row, w, b, stats, n, y_row);
      store(y, row * n, n, y_row);
    }
  });
}

void launch_norm_grad(const Launch& launch, Centered centered) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  const Tensor& dx = launch.results.at(0);
  const float* mean = centered == Centered::Yes ? launch.operands.at(3).as<float>() : nullptr;
  const float* rstd = launch.operands.back().as<float>();
  const int64_t n = row_length(x.shape);
  const float length = static_cast<float>(n);
  const Partials partials(row_count(x.shape), n, launch.workspace);
  team(launch).run(partials.chunks(), [&](int64_t chunk, float* scratch) {
    float* dw = partials.start(chunk);
    const float* w = load(launch.operands[2], 0, n, scratch);
    for (int64_t row = partials.first_row(chunk); row < partials.end_row(chunk); ++row) {
      const float* dy_row = load(dy, row * n, n, scratch + n);
      const float* x_row = load(x, row * n, n, scratch + 2 * n);
      float* dx_row = place(dx, row * n, scratch + 3 * n);
      const RowStats stats{mean != nullptr ? mean[row] : 0.0f, rstd[row]};
      const float dot = mean != nullptr ? dot_row(dy_row, w, n) / length : 0.0f;
      const float normalized_dot = dot_normalized_row(dy_row, w, x_row, stats, n) / length;
      norm_grad_row(dy_row, x_row, w, stats, dot, normalized_dot, n, dx_row, dw);
      store(dx, row * n, n, dx_row);
    }
  });
  partials.combine(team(launch), launch.results.at(1));
}

Decision supports_norm(const Call& call) {
  return supports_rows(call, call.type(0), 4);
}

int64_t norm_grad_workspace(const Call& call) {
  return Partials::bytes(row_count(call.type(0).shape), row_length(call.type(0).shape));
}

}  // namespace

std::span<const Kernel> cpu_norm_kernels() {
  static const Kernel rows[] = {
      {"layer_norm", "rows", supports_norm, nullptr,
       [](const Launch& launch) { launch_norm(launch, Centered::Yes); }},
      {"layer_norm_grad", "rows", supports_norm, norm_grad_workspace,
       [](const Launch& launch) { launch_norm_grad(launch, Centered::Yes); }},
      {"rms_norm", "rows", supports_norm, nullptr,
       [](const Launch& launch) { launch_norm(launch, Centered::No); }},
      {"rms_norm_grad", "rows", supports_norm, norm_grad_workspace,
       [](const Launch& launch) { launch_norm_grad(launch, Centered::No); }},
  };
  return rows;
}

}  // namespace weft
