// Gradient accumulation, the order-independent gradient norm, clipping and AdamW.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/exact_sum.h"
#include "base/loss_scale.h"
#include "base/tree_level.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kBlock = kFlatBlock;
constexpr int64_t kTile = 16 * kBlock;

// Calls fn(offset, n, scratch) for blocks that cover `total` elements.
template <class Fn>
void for_blocks(ThreadTeam& team, int64_t total, const Fn& fn) {
  team.run(ceil_div(total, kTile), [&](int64_t tile, float* scratch) {
    const int64_t end = std::min(total, (tile + 1) * kTile);
    for (int64_t offset = tile * kTile; offset < end; offset += kBlock) {
      fn(offset, std::min(kBlock, end - offset), scratch);
    }
  });
}

void launch_accumulate(const Launch& launch) {
  const float* acc = launch.operands.at(0).as<float>();
  const Tensor& g = launch.operands.at(1);
  float* sum = launch.results.at(0).as<float>();
  const AccumulateAction action =
      accumulate_action(launch.call->int_attr("level"), scalar_i32(launch.operands.at(2)));
  if (action == AccumulateAction::Keep) return;  // the sum is the accumulator
  for_blocks(team(launch), g.elements(), [&](int64_t offset, int64_t n, float* scratch) {
    const float* from = load(g, offset, n, scratch);
    if (action == AccumulateAction::Set) {
      std::copy(from, from + n, sum + offset);
    } else {
      add_rows(acc + offset, from, n, sum + offset);
    }
  });
}

// Sums of adjacent pairs of the thirty-two elements of a and b.
[[gnu::always_inline]] inline Lanes fold_pairs(Lanes a, Lanes b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// Sixteen sums of squares of kVectors adjacent elements each, as binary trees.
template <int kVectors>
[[gnu::always_inline]] inline Lanes square_trees(const float* g) {
  if constexpr (kVectors == 1) {
    return lanes_at(g) * lanes_at(g);
  } else {
    return fold_pairs(square_trees<kVectors / 2>(g),
                      square_trees<kVectors / 2>(g + kVectors / 2 * kLanes));
  }
}

// The sum of squares of a block as a binary tree over neighbours.
WEFT_CLONES float block_square_sum(const float* g) {
  Lanes sums = square_trees<kBlock / kLanes>(g);
  for (int left = kLanes; left > 1; left /= 2) sums = fold_pairs(sums, sums);
  return sums[0];
}

// The same for the last block, padded with zeros.
float part_square_sum(const float* g, int64_t n, float* scratch) {
  std::copy(g, g + n, scratch);
  std::fill(scratch + n, scratch + kBlock, 0.0f);
  return block_square_sum(scratch);
}

void launch_square_sum(const Launch& launch) {
  float* sums = static_cast<float*>(launch.workspace);
  int64_t blocks = 0;
  for (const Tensor& g : launch.operands) {
    float* first = sums + blocks;
    for_blocks(team(launch), g.elements(), [&](int64_t offset, int64_t n, float* scratch) {
      const float* values = load(g, offset, n, scratch + kBlock);
      first[offset / kBlock] =
          n == kBlock ? block_square_sum(values) : part_square_sum(values, n, scratch);
    });
    blocks += ceil_div(g.elements(), kBlock);
  }
  int64_t* words = launch.results.at(0).as<int64_t>();
  std::fill(words, words + kExactSumWords, 0);
  for (int64_t i = 0; i < blocks; ++i) {
    const ExactTerm term = exact_term(sums[i]);
    words[term.word] += term.low;
    words[term.word + 1] += term.high;
  }
}

int64_t square_sum_workspace(const Call& call) {
  int64_t blocks = 0;
  for (const TensorType& g : call.operands) blocks += ceil_div(g.elements(), kBlock);
  return blocks * static_cast<int64_t>(sizeof(float));
}

void launch_norm(const Launch& launch) {
  const double total = exact_total(launch.operands.at(0).as<int64_t>());
  const double scale = launch.operands.size() > 1 ? scalar_f32(launch.operands[1]) : 1.0;
  *launch.results.at(0).as<float>() = static_cast<float>(std::sqrt(total) / scale);
}

void launch_clip(const Launch& launch) {
  const double norm = scalar_f32(launch.operands.at(0));
  const int32_t updates = scalar_i32(launch.operands.at(1));
  const double scale = launch.operands.size() > 2 ? scalar_f32(launch.operands[2]) : 1.0;
  const double max_norm = launch.call->double_attr("max_norm");
  double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  const bool counts = std::isfinite(norm) && norm >= 0;
  if (!counts) coefficient = 0;
  *launch.results.at(0).as<float>() = static_cast<float>(coefficient / scale);
  *launch.results.at(1).as<int32_t>() = counts ? updates + 1 : updates;
}

void launch_update_scale(const Launch& launch) {
  const Call& call = *launch.call;
  const LossScaleRule rule{call.double_attr("growth"), call.double_attr("backoff"),
                           call.int_attr("interval")};
  const LossScale now{scalar_f32(launch.operands.at(0)), scalar_i32(launch.operands.at(1))};
  const float norm = scalar_f32(launch.operands.at(2));
  const LossScale next = norm < 0 ? now : next_loss_scale(now, std::isfinite(norm), rule);
  *launch.results.at(0).as<float>() = next.scale;
  *launch.results.at(1).as<int32_t>() = next.good;
}

// The scalars of one update, rounded to f32 from double.
struct Update {
  float coefficient, beta1, rest1, beta2, rest2, keep, rate, scale2, eps;
};

// v^ = v / (1 - beta2^count); w = w (1 - lr decay) - lr / (1 - beta1^count) m / (sqrt(v^) + eps).
WEFT_CLONES void adamw_block(const Update& u, const float* g, int64_t n, float* w, float* m,
                             float* v) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * u.coefficient;
    m[i] = u.beta1 * m[i] + u.rest1 * gradient;
    v[i] = u.beta2 * v[i] + u.rest2 * (gradient * gradient);
    w[i] = w[i] * u.keep - u.rate * m[i] / (std::sqrt(v[i] * u.scale2) + u.eps);
  }
}

Update update_of(const Launch& launch) {
  const Call& call = *launch.call;
  const double lr = scalar_f32(launch.operands.at(4));
  const double beta1 = call.double_attr("beta1");
  const double beta2 = call.double_attr("beta2");
  const int32_t updates = scalar_i32(launch.operands.at(6));
  return {.coefficient = scalar_f32(launch.operands.at(5)),
          .beta1 = static_cast<float>(beta1),
          .rest1 = static_cast<float>(1.0 - beta1),
          .beta2 = static_cast<float>(beta2),
          .rest2 = static_cast<float>(1.0 - beta2),
          .keep = static_cast<float>(1.0 - lr * call.double_attr("decay")),
          .rate = static_cast<float>(lr / (1.0 - std::pow(beta1, updates))),
          .scale2 = static_cast<float>(1.0 / (1.0 - std::pow(beta2, updates))),
          .eps = static_cast<float>(call.double_attr("eps"))};
}

// Whether the block at `element` of a flat tensor lies in one of the ascending pairs begin,end; an
// empty list means everywhere.
bool decays(const std::vector<int64_t>& ranges, int64_t element) {
  const auto above = std::upper_bound(ranges.begin(), ranges.end(), element);
  return ranges.empty() || (above - ranges.begin()) % 2 == 1;
}

void launch_adamw(const Launch& launch) {
  const Tensor& g = launch.operands.at(1);
  const int64_t total = g.elements();
  const bool keeps_low = launch.results.size() > 3;  // adamw_cast
  constexpr size_t kOverwritten[] = {0, 2, 3, 7};    // w, m, v and low
  for (size_t i = 0; i < launch.results.size(); ++i) {
    // They differ only in a hand-made launch.
    const Tensor& from = launch.operands.at(kOverwritten[i]);
    const Tensor& to = launch.results[i];
    const auto bytes = static_cast<size_t>(total * dtype_bytes(to.dtype));
    if (from.data != to.data) std::memcpy(to.data, from.data, bytes);
  }
  const Update update = update_of(launch);
  if (update.coefficient == 0) return;
  float* w = launch.results[0].as<float>();
  float* m = launch.results[1].as<float>();
  float* v = launch.results[2].as<float>();
  Update without_decay = update;
  without_decay.keep = 1;
  const std::vector<int64_t>& ranges = launch.call->ints_attr("decayed");
  const size_t coordinate = keeps_low ? 8 : 7;
  const int64_t first =
      launch.operands.size() > coordinate ? scalar_i32(launch.operands[coordinate]) * total : 0;
  for_blocks(team(launch), total, [&](int64_t offset, int64_t n, float* scratch) {
    const Update& own = decays(ranges, first + offset) ? update : without_decay;
    adamw_block(own, load(g, offset, n, scratch), n, w + offset, m + offset, v + offset);
    if (keeps_low) store(launch.results[3], offset, n, w + offset);
  });
}

}  // namespace

std::span<const Kernel> cpu_optimizer_kernels() {
  static const Kernel rows[] = {
      {"accumulate", "blocks", supports_cpu_dtypes, nullptr, launch_accumulate},
      {"square_sum", "exact", supports_cpu_dtypes, square_sum_workspace, launch_square_sum},
      {"norm", "exact", supports_cpu_dtypes, nullptr, launch_norm},
      {"clip", "scalar", supports_cpu_dtypes, nullptr, launch_clip},
      {"update_scale", "scalar", supports_cpu_dtypes, nullptr, launch_update_scale},
      {"adamw", "blocks", supports_cpu_dtypes, nullptr, launch_adamw},
      {"adamw_cast", "blocks", supports_cpu_dtypes, nullptr, launch_adamw},
  };
  return rows;
}

}  // namespace weft
