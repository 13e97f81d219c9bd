// qk_norm, qk_unit_norm and their gradients: the rows of a norm are heads.
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/norm_rows.h"
#include "runtime/cpu/partials.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

struct Heads {
  int64_t q, kv, dim;

  int64_t normed() const { return q + kv; }
  int64_t width() const { return (q + 2 * kv) * dim; }
};

Heads heads_of(const Launch& launch, const Tensor& x) {
  const int64_t q = launch.call->int_attr("heads"), kv = launch.call->int_attr("kv_heads");
  return {q, kv, row_length(x) / (q + 2 * kv)};
}

// The weights of q and k; `buffer` holds both if they are converted, and ones if there are none.
struct Weights {
  const float *q, *k;
};

Weights load_weights(const Launch& launch, size_t first, int64_t dim, float* buffer) {
  if (launch.operands.size() == first) {
    std::fill_n(buffer, dim, 1.0f);
    return {buffer, buffer};
  }
  return {load(launch.operands.at(first), 0, dim, buffer),
          load(launch.operands.at(first + 1), 0, dim, buffer + dim)};
}

void launch_qk_norm(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const Heads heads = heads_of(launch, x);
  const int64_t width = heads.width(), dim = heads.dim;
  const int64_t rows = row_count(x), step = tile_rows(width);
  const float eps = static_cast<float>(launch.call->double_attr("eps"));
  float* rstd = launch.results.at(1).as<float>();
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    const Weights weights = load_weights(launch, 1, dim, scratch);
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      const float* from = load(x, row * width, width, scratch + width);
      float* to = place(y, row * width, scratch + 2 * width);
      for (int64_t head = 0; head < heads.normed(); ++head) {
        const RowStats stats = stats_of(from + head * dim, dim, eps, Centered::No);
        rstd[row * heads.normed() + head] = stats.rstd;
        normalize_row(from + head * dim, head < heads.q ? weights.q : weights.k, nullptr, stats,
                      dim, to + head * dim);
      }
      const int64_t values = heads.normed() * dim;
      std::copy(from + values, from + width, to + values);
      store(y, row * width, width, to);
    }
  });
}

void launch_qk_norm_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  const Tensor& dx = launch.results.at(0);
  const float* rstd = launch.operands.at(2).as<float>();
  const Heads heads = heads_of(launch, x);
  const int64_t width = heads.width(), dim = heads.dim, rows = row_count(x);
  char* memory = static_cast<char*>(launch.workspace);
  const Partials dq_sums(rows, dim, memory);
  const Partials dk_sums(rows, dim, memory + Partials::bytes(rows, dim));
  team(launch).run(dq_sums.chunks(), [&](int64_t chunk, float* scratch) {
    float* dq = dq_sums.start(chunk);
    float* dk = dk_sums.start(chunk);
    const Weights weights = load_weights(launch, 3, dim, scratch);
    for (int64_t row = dq_sums.first_row(chunk); row < dq_sums.end_row(chunk); ++row) {
      const float* dy_row = load(dy, row * width, width, scratch + width);
      const float* x_row = load(x, row * width, width, scratch + 2 * width);
      float* dx_row = place(dx, row * width, scratch + 3 * width);
      for (int64_t head = 0; head < heads.normed(); ++head) {
        const int64_t at = head * dim;
        const float* w = head < heads.q ? weights.q : weights.k;
        const RowStats stats{0, rstd[row * heads.normed() + head]};
        const float dot =
            dot_normalized_row(dy_row + at, w, x_row + at, stats, dim) / static_cast<float>(dim);
        norm_grad_row(dy_row + at, x_row + at, w, stats, 0, dot, dim, dx_row + at,
                      head < heads.q ? dq : dk);
      }
      const int64_t values = heads.normed() * dim;
      std::copy(dy_row + values, dy_row + width, dx_row + values);
      store(dx, row * width, width, dx_row);
    }
  });
  dq_sums.combine(team(launch), launch.results.at(1));
  dk_sums.combine(team(launch), launch.results.at(2));
}

// Sums that nothing reads would cost as much as the gradient itself.
WEFT_CLONES void unit_norm_grad_row(const float* dy, const float* x, float rstd, float mean_dot,
                                    int64_t n, float* dx) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) dx[i] = rstd * (dy[i] - x[i] * rstd * mean_dot);
}

void launch_qk_unit_norm_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  const Tensor& dx = launch.results.at(0);
  const float* rstd = launch.operands.at(2).as<float>();
  const Heads heads = heads_of(launch, x);
  const int64_t width = heads.width(), dim = heads.dim, normed = heads.normed();
  const int64_t rows = row_count(x), step = tile_rows(width);
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      const float* dy_row = load(dy, row * width, width, scratch);
      const float* x_row = load(x, row * width, width, scratch + width);
      float* dx_row = place(dx, row * width, scratch + 2 * width);
      for (int64_t head = 0; head < normed; ++head) {
        const int64_t at = head * dim;
        const float scale = rstd[row * normed + head];
        const float dot = scale * dot_rows(dy_row + at, x_row + at, dim);
        unit_norm_grad_row(dy_row + at, x_row + at, scale, dot / static_cast<float>(dim), dim,
                           dx_row + at);
      }
      std::copy(dy_row + normed * dim, dy_row + width, dx_row + normed * dim);
      store(dx, row * width, width, dx_row);
    }
  });
}

Decision supports_heads(const Call& call) {
  return supports_rows(call, call.type("x"), 4);
}

int64_t grad_workspace(const Call& call) {
  return 2 * Partials::bytes(row_count(call.type("x").shape), call.results.at(1).shape.at(0));
}

}  // namespace

std::span<const Kernel> cpu_qk_norm_kernels() {
  static const Kernel rows[] = {
      {"qk_norm", "rows", supports_heads, nullptr, launch_qk_norm},
      {"qk_norm_grad", "rows", supports_heads, grad_workspace, launch_qk_norm_grad},
      {"qk_unit_norm", "rows", supports_heads, nullptr, launch_qk_norm},
      {"qk_unit_norm_grad", "rows", supports_heads, nullptr, launch_qk_unit_norm_grad},
  };
  return rows;
}

}  // namespace weft
