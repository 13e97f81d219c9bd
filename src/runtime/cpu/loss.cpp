// Cross entropy over rows of logits and its gradient. The losses of the rows are added in a binary
// tree.
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

// The largest of some values and the sum of exp(value - largest).
struct ExpSum {
  float top = -INFINITY;
  float sum = 0;
};

ExpSum exp_sum(const float* x, int64_t n) {
  ExpSum of;
  if (n == 0) return of;
  of.top = x[0];
  for (int64_t i = 0; i < n; i += kBlock) {
    of.top = std::max(of.top, max_block(x + i, std::min(kBlock, n - i)));
  }
  float terms[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t block = std::min(kBlock, n - i);
    exp_block(x + i, of.top, 1.0f, block, terms);
    of.sum += sum_block(terms, block);
  }
  return of;
}

float log_sum_exp(const ExpSum& of) {
  return of.top + std::log(of.sum);
}

// Logits and targets, one row per token. The columns may be a shard of the classes.
struct Rows {
  const Tensor& logits;
  const int32_t* targets;
  int64_t n, count;
  int64_t classes = n;  // of all shards
  int64_t first = 0;    // the class of the first column
  int64_t valid = n;    // columns before the padding

  Rows(const Tensor& x, const Tensor& ids)
      : logits(x), targets(ids.as<int32_t>()), n(row_length(x.shape)), count(row_count(x.shape)) {}

  void set_shard(const Launch& launch, const Tensor& coordinate) {
    classes = launch.call->int_attr("classes");
    first = scalar_i32(coordinate) * n;
    valid = std::clamp<int64_t>(classes - first, 0, n);
  }

  // The target, or a negative number.
  int32_t target(int64_t row) const {
    CHECK(targets[row] < classes, "target ", targets[row], " of ", classes, " classes");
    return targets[row];
  }
  // Its column, or -1 if there is no target or another shard has it.
  int64_t column(int64_t row) const {
    const int64_t at = target(row) - first;
    return target(row) >= 0 && at >= 0 && at < valid ? at : -1;
  }
};

// The loss of one row, and its lse.
float row_loss(const Rows& rows, int64_t row, float* lse, float* scratch) {
  const float* x = load(rows.logits, row * rows.n, rows.n, scratch);
  const int32_t target = rows.target(row);
  *lse = log_sum_exp(exp_sum(x, rows.n));
  return target < 0 ? 0.0f : *lse - x[target];
}

// The row's gradient may overwrite its logits.
void row_grad(const Rows& rows, int64_t row, float lse, float factor, const Tensor& dlogits,
              float* scratch) {
  const int64_t n = rows.n;
  float* d = place(dlogits, row * n, scratch);
  if (rows.target(row) < 0) {
    std::fill(d, d + n, 0.0f);
  } else {
    const float* x = load(rows.logits, row * n, n, scratch);
    const int64_t column = rows.column(row);
    const float at_target = column < 0 ? 0.0f : (exp_f32(x[column] - lse) - 1.0f) * factor;
    exp_block(x, lse, factor, rows.valid, d);
    if (column >= 0) d[column] = at_target;
    std::fill(d + rows.valid, d + n, 0.0f);
  }
  store(dlogits, row * n, n, d);
}

// Calls fn(row, scratch) for rows [0, count); `length` is the number of elements in one.
template <class Fn>
void for_rows(const Launch& launch, int64_t count, int64_t length, const Fn& fn) {
  const int64_t step = tile_rows(length);
  team(launch).run(ceil_div(count, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(count, (tile + 1) * step); ++row) {
      fn(row, scratch);
    }
  });
}

template <class Fn>
void for_rows(const Launch& launch, const Rows& rows, const Fn& fn) {
  for_rows(launch, rows.count, rows.n, fn);
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
  Rows rows(launch.operands.at(1), launch.operands.at(2));
  if (launch.operands.size() > 5) rows.set_shard(launch, launch.operands[5]);
  const float factor = scalar_f32(launch.operands.at(0)) / scalar_f32(launch.operands.at(4));
  const float* lse = launch.operands.at(3).as<float>();
  for_rows(launch, rows, [&](int64_t row, float* scratch) {
    row_grad(rows, row, lse[row], factor, launch.results.at(0), scratch);
  });
}

constexpr int64_t kStats = 3;  // per row: largest logit, sum of exponentials, logit of the target

void launch_cross_entropy_stats(const Launch& launch) {
  Rows rows(launch.operands.at(0), launch.operands.at(1));
  rows.set_shard(launch, launch.operands.at(2));
  float* stats = launch.results.at(0).as<float>();
  for_rows(launch, rows, [&](int64_t row, float* scratch) {
    const float* x = load(rows.logits, row * rows.n, rows.n, scratch);
    const ExpSum of = exp_sum(x, rows.valid);
    const int64_t column = rows.column(row);
    float* out = stats + row * kStats;
    out[0] = of.top;
    out[1] = of.sum;
    out[2] = column < 0 ? 0.0f : x[column];
  });
}

void launch_cross_entropy_combine(const Launch& launch) {
  const Tensor& stats = launch.operands.at(0);
  const int32_t* targets = launch.operands.at(1).as<int32_t>();
  const int64_t shards = stats.shape.at(0);
  const int64_t count = launch.operands[1].elements();
  float* lse = launch.results.at(1).as<float>();
  float* losses = static_cast<float*>(launch.workspace);
  for_rows(launch, count, shards * kStats, [&](int64_t row, float*) {
    const auto of = [&](int64_t shard) {
      return stats.as<float>() + (shard * count + row) * kStats;
    };
    ExpSum all;
    float target_logit = 0;
    for (int64_t s = 0; s < shards; ++s) all.top = std::max(all.top, of(s)[0]);
    for (int64_t s = 0; s < shards; ++s) {
      all.sum += of(s)[1] * exp_f32(of(s)[0] - all.top);
      target_logit += of(s)[2];
    }
    lse[row] = log_sum_exp(all);
    losses[row] = targets[row] < 0 ? 0.0f : lse[row] - target_logit;
  });
  *launch.results.at(0).as<float>() = tree_sum(losses, count) / scalar_f32(launch.operands.at(2));
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

int64_t cross_entropy_combine_workspace(const Call& call) {
  return call.type(1).elements() * static_cast<int64_t>(sizeof(float));
}

}  // namespace

std::span<const Kernel> cpu_loss_kernels() {
  static const Kernel rows[] = {
      {"cross_entropy", "rows", supports_cross_entropy, cross_entropy_workspace,
       launch_cross_entropy},
      {"cross_entropy_grad", "rows", supports_cross_entropy_grad, nullptr,
       launch_cross_entropy_grad},
      {"cross_entropy_stats", "rows", supports_cross_entropy, nullptr, launch_cross_entropy_stats},
      {"cross_entropy_combine", "rows", supports_cpu_dtypes, cross_entropy_combine_workspace,
       launch_cross_entropy_combine},
  };
  return rows;
}

}  // namespace weft
