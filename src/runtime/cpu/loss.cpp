// Cross entropy over rows of logits and its gradient. The losses of the rows are added in a binary
// tree.
#include <cmath>

#include "base/error.h"
#include "base/tree_level.h"
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
  const int64_t half = tree_split(n);
  return tree_sum(x, half) + tree_sum(x + half, n - half);
}

// Logits and targets, one row per token.
struct Rows {
  const Tensor& logits;
  const int32_t* targets;
  int64_t n, count;

  Rows(const Tensor& x, const Tensor& ids)
      : logits(x), targets(ids.as<int32_t>()), n(row_length(x.shape)), count(row_count(x.shape)) {}
};

// The loss of one row, and its lse.
float row_loss(const Rows& rows, int64_t row, float* lse, float* scratch) {
  const float* x = load(rows.logits, row * rows.n, rows.n, scratch);
  const int32_t target = rows.targets[row];
  CHECK(target < rows.n, "target ", target, " of ", rows.n, " classes");
  *lse = log_sum_exp(x, rows.n);
  return target < 0 ? 0.0f : *lse - x[target];
}

// The row's gradient may overwrite its logits.
void row_grad(const Rows& rows, int64_t row, float lse, float factor, const Tensor& dlogits,
              float* scratch) {
  const int64_t n = rows.n;
  const int32_t target = rows.targets[row];
  CHECK(target < n, "target ", target, " of ", n, " classes");
  float* d = place(dlogits, row * n, scratch);
  if (target < 0) {
    std::fill(d, d + n, 0.0f);
  } else {
    const float* x = load(rows.logits, row * n, n, scratch);
    const float at_target = (exp_f32(x[target] - lse) - 1.0f) * factor;
    exp_block(x, lse, factor, n, d);
    d[target] = at_target;
  }
  store(dlogits, row * n, n, d);
}

// Calls fn(row, scratch) for all rows.
template <class Fn>
void for_rows(const Launch& launch, const Rows& rows, const Fn& fn) {
  const int64_t step = tile_rows(rows.n);
  team(launch).run(ceil_div(rows.count, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows.count, (tile + 1) * step); ++row) {
      fn(row, scratch);
    }
  });
}

void launch_cross_entropy(const Launch& launch) {
  const Rows rows(launch.operands.at(0), launch.operands.at(1));
  float* lse = launch.results.at(1).as<float>();
  float* losses = static_cast<float*>(launch.workspace);
  for_rows(launch, rows, [&](int64_t row, float* scratch) {
    losses[row] = row_loss(rows, row, lse + row, scratch);
  });
  *launch.results.at(0).as<float>() =
      tree_sum(losses, rows.count) / scalar_f32(launch.operands.at(2));
}

void launch_cross_entropy_grad(const Launch& launch) {
  const Rows rows(launch.operands.at(1), launch.operands.at(2));
  const float factor = scalar_f32(launch.operands.at(0)) / scalar_f32(launch.operands.at(4));
  const float* lse = launch.operands.at(3).as<float>();
  for_rows(launch, rows, [&](int64_t row, float* scratch) {
    row_grad(rows, row, lse[row], factor, launch.results.at(0), scratch);
  });
}

// Computes each row's gradient right after its loss, while the row is in the cache.
void launch_cross_entropy_both(const Launch& launch) {
  const Rows rows(launch.operands.at(1), launch.operands.at(2));
  const float count = scalar_f32(launch.operands.at(3));
  const float factor = scalar_f32(launch.operands.at(0)) / count;
  float* losses = static_cast<float*>(launch.workspace);
  for_rows(launch, rows, [&](int64_t row, float* scratch) {
    float lse = 0;
    losses[row] = row_loss(rows, row, &lse, scratch);
    row_grad(rows, row, lse, factor, launch.results.at(0), scratch);
  });
  *launch.results.at(1).as<float>() = tree_sum(losses, rows.count) / count;
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
  return row_count(call.type(1).shape) * static_cast<int64_t>(sizeof(float));
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
