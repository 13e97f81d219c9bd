// add, cast, gelu, gelu_grad and dropout, block by block: a block is computed in f32 and rounded to
// the dtype of the result. Also shard_rng, for dropout.
#include <numbers>

#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/random.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kTile = 16 * kBlock;

// gelu(x) = x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3), which has no cancellation.
constexpr float kGeluScale =
    static_cast<float>(2.0 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
constexpr float kGeluCubic = 0.044715f;

WEFT_CLONES void copy_block(const float* x, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}

WEFT_CLONES void gelu_block(const float* x, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i];
    y[i] = v * sigmoid_f32(kGeluScale * (v + kGeluCubic * (v * v * v)));
  }
}

WEFT_CLONES void gelu_grad_block(const float* dy, const float* x, int64_t n, float* dx) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i];
    const float s = sigmoid_f32(kGeluScale * (v + kGeluCubic * (v * v * v)));
    const float slope = kGeluScale * (1.0f + 3.0f * kGeluCubic * (v * v));
    dx[i] = dy[i] * (s + v * (s * (1.0f - s)) * slope);
  }
}

// Calls compute(offset, n, scratch, to) for blocks of elements of the result: it loads its operands
// into two blocks of scratch memory and computes `to` in f32.
template <class Compute>
void for_blocks(const Launch& launch, const Compute& compute) {
  const Tensor& result = launch.results.at(0);
  const int64_t total = result.elements();
  team(launch).run(ceil_div(total, kTile), [&](int64_t tile, float* scratch) {
    const int64_t end = std::min(total, (tile + 1) * kTile);
    for (int64_t offset = tile * kTile; offset < end; offset += kBlock) {
      const int64_t n = std::min(kBlock, end - offset);
      float* to = place(result, offset, scratch + 2 * kBlock);
      compute(offset, n, scratch, to);
      store(result, offset, n, to);
    }
  });
}

// An op of one operand: compute(x, n, to).
template <auto kCompute>
void launch_unary(const Launch& launch) {
  for_blocks(launch, [&](int64_t offset, int64_t n, float* scratch, float* to) {
    kCompute(load(launch.operands[0], offset, n, scratch), n, to);
  });
}

// An op of two operands: compute(x, y, n, to).
template <auto kCompute>
void launch_binary(const Launch& launch) {
  for_blocks(launch, [&](int64_t offset, int64_t n, float* scratch, float* to) {
    const float* x = load(launch.operands[0], offset, n, scratch);
    const float* y = load(launch.operands[1], offset, n, scratch + kBlock);
    kCompute(x, y, n, to);
  });
}

void launch_dropout(const Launch& launch) {
  const Dropout dropout = make_dropout(launch.operands.at(1), launch.call->int_attr("stream"),
                                       launch.call->double_attr("rate"));
  const Shape& shape = launch.results.at(0).shape;
  const int64_t per_sample = count(shape) / std::max<int64_t>(1, shape.at(0));
  for_blocks(launch, [&](int64_t offset, int64_t n, float* scratch, float* to) {
    const float* x = load(launch.operands[0], offset, n, scratch);
    apply_dropout_at(dropout, per_sample, offset, n, x, to);
  });
}

constexpr int32_t kOneShard[] = {0, 1};

void launch_shard_rng(const Launch& launch) {
  auto* sharded = launch.results.at(0).as<int32_t>();
  const auto* rng = launch.operands.at(0).as<int32_t>();
  const bool head_tail = launch.call->bool_attr("head_tail");
  std::copy(rng, rng + launch.operands[0].elements(), sharded);
  if (head_tail) std::copy_n(kOneShard, 2, sharded + 4);
  sharded[head_tail ? 6 : 4] = scalar_i32(launch.operands.at(1));
  sharded[head_tail ? 7 : 5] = static_cast<int32_t>(launch.call->int_attr("shards"));
}

}  // namespace

std::span<const Kernel> cpu_elementwise_kernels() {
  constexpr auto kAddBlocks = launch_binary<add_rows>;
  static const Kernel rows[] = {
      {"add", "vector", supports_cpu_dtypes, nullptr, kAddBlocks},
      {"add_in_place", "vector", supports_cpu_dtypes, nullptr, kAddBlocks},
      {"cast", "vector", supports_cpu_dtypes, nullptr, launch_unary<copy_block>},
      {"gelu", "vector", supports_cpu_dtypes, nullptr, launch_unary<gelu_block>},
      {"gelu_grad", "vector", supports_cpu_dtypes, nullptr, launch_binary<gelu_grad_block>},
      {"dropout", "vector", supports_cpu_dtypes, nullptr, launch_dropout},
      {"shard_rng", "copy", supports_cpu_dtypes, nullptr, launch_shard_rng},
  };
  return rows;
}

}  // namespace weft
