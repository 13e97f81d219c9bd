// Cross entropy over rows of logits and its gradient. The rows' losses are added in a binary tree
// over the rows.
#include <cmath>

#include "base/error.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 1024;

WEFT_CLONES float max_block(const float* x, int64_t n) {
  return lane_max(x, n);
}

// y = exp(x - shift) * scale.
WEFT_CLONES void exp_block(const float* x, float shift, float scale, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = exp_f32(x[i] - shift) * scale;
}

WEFT_CLONES float sum_block(const float* x, int64_t n) {
  return lane_sum(
      n, [&](int64_t i) { return lanes_at(x + i); }, [&](int64_t i) { return x[i]; });
}

float log_sum_exp(const float* x, int64_t n) {
  float top = x[0];
  for (int64_t i = 0; i < n; i += kBlock) {
    top = std::max(top, max_block(x + i, std::min(kBlock, n - i)));
  }
  float sum = 0;
  float terms[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t block = std::min(kBlock, n - i);
    exp_block(x + i, top, 1.0f, block, terms);
    sum += sum_block(terms, block);
  }
  return top + std::log(sum);
}

float tree_sum(const float* x, int64_t n) {
  if (n == 0) return 0;
  if (n == 1) return x[0];
  int64_t half = 1;
  while (2 * half < n) half *= 2;
  return tree_sum(x, half) + tree_sum(x + half, n - half);
}

void check_target(int32_t target, int64_t classes) {
  CHECK(target < classes, "target ", target, " of ", classes, " classes");
}

void launch_cross_entropy(const Launch& launch) {
  const Tensor& logits = launch.operands.at(0);
  const int32_t* targets = launch.operands.at(1).as<int32_t>();
  float* lse = launch.results.at(1).as<float>();
  float* losses = static_cast<float*>(launch.workspace);
  const int64_t n = row_length(logits.shape);
  const int64_t rows = row_count(logits.shape);
  const int64_t step = tile_rows(n);
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      const float* x = load(logits, row * n, n, scratch);
      check_target(targets[row], n);
      lse[row] = log_sum_exp(x, n);
      losses[row] = targets[row] < 0 ? 0.0f : lse[row] - x[targets[row]];
    }
  });
  *launch.results.at(0).as<float>() = tree_sum(losses, rows) / scalar_f32(launch.operands.at(2));
}

void launch_cross_entropy_grad(const Launch& launch) {
  const float factor = scalar_f32(launch.operands.at(0)) / scalar_f32(launch.operands.at(4));
  const Tensor& logits = launch.operands.at(1);
  const int32_t* targets = launch.operands.at(2).as<int32_t>();
  const float* lse = launch.operands.at(3).as<float>();
  const Tensor& dlogits = launch.results.at(0);
  const int64_t n = row_length(logits.shape);
  const int64_t rows = row_count(logits.shape);
  const int64_t step = tile_rows(n);
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      float* d = place(dlogits, row * n, scratch);
      check_target(targets[row], n);
      if (targets[row] < 0) {
        std::fill(d, d + n, 0.0f);
      } else {
        const float* x = load(logits, row * n, n, scratch);
        const float at_target = (exp_f32(x[targets[row]] - lse[row]) - 1.0f) * factor;
        exp_block(x, lse[row], factor, n, d);
        d[targets[row]] = at_target;
      }
      store(dlogits, row * n, n, d);
    }
  });
}

// The two after each other; lse lies behind the losses of the rows.
void launch_cross_entropy_both(const Launch& launch) {
  const std::vector<Tensor>& x = launch.operands;
  const int64_t rows = row_count(x.at(1).shape);
  const Tensor lse{static_cast<float*>(launch.workspace) + rows, DType::F32, x.at(2).shape};
  Launch loss = launch;
  loss.operands = {x.at(1), x.at(2), x.at(3)};
  loss.results = {launch.results.at(1), lse};
  launch_cross_entropy(loss);
  Launch grad = launch;
  grad.operands = {x.at(0), x.at(1), x.at(2), lse, x.at(3)};
  grad.results = {launch.results.at(0)};
  launch_cross_entropy_grad(grad);
}

Decision supports_cross_entropy(const Call& call) {
  return supports_rows(call, call.type(0), 1);
}

Decision supports_cross_entropy_grad(const Call& call) {
  return supports_rows(call, call.type(1), 1);
}

int64_t cross_entropy_workspace(const Call& call) {
  return row_count(call.type(0).shape) * static_cast<int64_t>(sizeof(float));
}

int64_t cross_entropy_both_workspace(const Call& call) {
  return 2 * row_count(call.type(1).shape) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

std::span<const Kernel> cpu_loss_kernels() {
  static const Kernel rows[] = {
      {"cross_entropy", "rows", supports_cross_entropy, cross_entropy_workspace,
       launch_cross_entropy},
      {"cross_entropy_grad", "rows", supports_cross_entropy_grad, nullptr,
       launch_cross_entropy_grad},
      {"cross_entropy_both", "rows", supports_cross_entropy_grad, cross_entropy_both_workspace,
       launch_cross_entropy_both},
  };
  return rows;
}

}  // namespace weft
