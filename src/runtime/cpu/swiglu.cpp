// The gated unit of Llama's feed-forward layer: y = silu(gate) * up, gate and up adjacent in each
// row; for experts also times a weight per row.
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/simd.h"
#include "runtime/expert_rows.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 1024;

WEFT_CLONES void swiglu_block(const float* gate, const float* up, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] * sigmoid_f32(gate[i]) * up[i];
}

WEFT_CLONES void swiglu_grad_block(const float* dy, const float* gate, const float* up, int64_t n,
                                   float* dgate, float* dup) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const float d = dy[i];
    const float g = gate[i];
    const float u = up[i];
    const float s = sigmoid_f32(g);
    dgate[i] = d * u * (s * (1.0f + g * (1.0f - s)));
    dup[i] = d * (g * s);
  }
}

WEFT_CLONES void weighted_swiglu_block(const float* gate, const float* up, float w, int64_t n,
                                       float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = w * (gate[i] * sigmoid_f32(gate[i]) * up[i]);
}

// dgate and dup of dy, which is multiplied by w; y without w.
WEFT_CLONES void weighted_swiglu_grad_block(const float* dy, const float* gate, const float* up,
                                            float w, int64_t n, float* dgate, float* dup,
                                            float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const float d = w * dy[i];
    const float g = gate[i];
    const float u = up[i];
    const float s = sigmoid_f32(g);
    y[i] = g * s * u;
    dgate[i] = d * u * (s * (1.0f + g * (1.0f - s)));
    dup[i] = d * (g * s);
  }
}

// Calls fn(row, first column, columns, scratch) for the blocks of rows of `length` elements.
template <class Fn>
void for_blocks(ThreadTeam& team, int64_t rows, int64_t length, const Fn& fn) {
  const int64_t step = tile_rows(length);
  team.run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      for (int64_t col = 0; col < length; col += kBlock) {
        fn(row, col, std::min(kBlock, length - col), scratch);
      }
    }
  });
}

void launch_swiglu(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const int64_t f = row_length(y.shape);
  for_blocks(team(launch), row_count(y.shape), f,
             [&](int64_t row, int64_t col, int64_t n, float* scratch) {
               const int64_t gate = 2 * row * f + col;
               float* y_block = place(y, row * f + col, scratch + 2 * kBlock);
               swiglu_block(load(x, gate, n, scratch), load(x, gate + f, n, scratch + kBlock), n,
                            y_block);
               store(y, row * f + col, n, y_block);
             });
}

// dx may alias x.
void launch_swiglu_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  const Tensor& dx = launch.results.at(0);
  const int64_t f = row_length(dy.shape);
  for_blocks(team(launch), row_count(dy.shape), f,
             [&](int64_t row, int64_t col, int64_t n, float* scratch) {
               const int64_t gate = 2 * row * f + col;
               const float* gate_block = load(x, gate, n, scratch + kBlock);
               const float* up_block = load(x, gate + f, n, scratch + 2 * kBlock);
               float* dgate = place(dx, gate, scratch + 3 * kBlock);
               float* dup = place(dx, gate + f, scratch + 4 * kBlock);
               swiglu_grad_block(load(dy, row * f + col, n, scratch), gate_block, up_block, n,
                                 dgate, dup);
               store(dx, gate, n, dgate);
               store(dx, gate + f, n, dup);
             });
}

// Calls fn(row, scratch) for the rows of x below the offsets.
template <class Fn>
void for_filled_rows(const Launch& launch, const Tensor& x, const Tensor& offsets, const Fn& fn) {
  const ExpertRows rows = expert_rows(x, offsets);
  const int64_t step = tile_rows(row_length(x)), per_block = ceil_div(rows.slots, step);
  team(launch).run(row_count(offsets) * per_block, [&](int64_t tile, float* scratch) {
    const int64_t block = tile / per_block;
    const RowRange filled = rows.in_block(block);
    const int64_t begin = block * rows.slots + tile % per_block * step;
    const int64_t end = std::min(begin + step, filled.first + filled.rows);
    for (int64_t row = std::max(begin, filled.first); row < end; ++row) fn(row, scratch);
  });
}

void launch_weighted_swiglu(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const float* w = launch.operands.at(2).as<float>();
  const Tensor& y = launch.results.at(0);
  const int64_t f = row_length(y);
  for_filled_rows(launch, x, launch.operands.at(1), [&](int64_t row, float* scratch) {
    for (int64_t col = 0; col < f; col += kBlock) {
      const int64_t gate = 2 * row * f + col, at = row * f + col, n = std::min(kBlock, f - col);
      float* y_block = place(y, at, scratch + 2 * kBlock);
      weighted_swiglu_block(load(x, gate, n, scratch), load(x, gate + f, n, scratch + kBlock),
                            w[row], n, y_block);
      store(y, at, n, y_block);
    }
  });
}

void launch_weighted_swiglu_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  const float* w = launch.operands.at(3).as<float>();
  const Tensor& dx = launch.results.at(0);
  float* dw = launch.results.at(1).as<float>();
  const int64_t f = row_length(dy);
  for_filled_rows(launch, x, launch.operands.at(2), [&](int64_t row, float* scratch) {
    float sum = 0;
    for (int64_t col = 0; col < f; col += kBlock) {
      const int64_t gate = 2 * row * f + col, n = std::min(kBlock, f - col);
      const float* d = load(dy, row * f + col, n, scratch);
      const float* gate_block = load(x, gate, n, scratch + kBlock);
      const float* up_block = load(x, gate + f, n, scratch + 2 * kBlock);
      float* dgate = place(dx, gate, scratch + 3 * kBlock);
      float* dup = place(dx, gate + f, scratch + 4 * kBlock);
      float* y = scratch + 5 * kBlock;
      weighted_swiglu_grad_block(d, gate_block, up_block, w[row], n, dgate, dup, y);
      sum += dot_rows(d, y, n);
      store(dx, gate, n, dgate);
      store(dx, gate + f, n, dup);
    }
    dw[row] = sum;
  });
}

}  // namespace

std::span<const Kernel> cpu_swiglu_kernels() {
  static const Kernel rows[] = {
      {"swiglu", "rows", supports_cpu_dtypes, nullptr, launch_swiglu},
      {"swiglu_grad", "rows", supports_cpu_dtypes, nullptr, launch_swiglu_grad},
      {"weighted_swiglu", "rows", supports_cpu_dtypes, nullptr, launch_weighted_swiglu},
      {"weighted_swiglu_grad", "rows", supports_cpu_dtypes, nullptr, launch_weighted_swiglu_grad},
  };
  return rows;
}

}  // namespace weft
