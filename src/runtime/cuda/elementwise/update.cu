// accumulate, clip, update_scale and adamw: the end of a step. Scalars of the step stay on the
// device, so the update does not wait for the host.
#include <algorithm>
#include <cmath>

#include "base/loss_scale.h"
#include "base/tree_level.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

static_assert(kFlatBlock % (kThreads * 4) == 0, "a block of threads updates one flat block");

struct AccumulateArgs {
  const float* acc = nullptr;
  Elements g;
  const int32_t* micro = nullptr;
  float* sum = nullptr;  // aliases acc
  int64_t n = 0;
  int64_t level = 0;
};

__global__ void clear_at_start(float* acc, const int32_t* micro, int64_t n) {
  if (*micro != 0) return;
  for (int64_t i = global_thread(); i < n; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    acc[i] = 0;
  }
}

__global__ void accumulate(AccumulateArgs args) {
  const int64_t i = global_thread();
  const AccumulateAction action = accumulate_action(args.level, *args.micro);
  if (i >= args.n || action == AccumulateAction::Keep) return;
  const float g = args.g.get(i);
  args.sum[i] = action == AccumulateAction::Set ? g : args.acc[i] + g;
}

__global__ void vector_accumulate(AccumulateArgs args) {
  const int64_t i = vector_start();
  const AccumulateAction action = accumulate_action(args.level, *args.micro);
  if (i >= args.n || action == AccumulateAction::Keep) return;
  float value[kLanes];
  load_vector(args.g, i, value);
  if (action != AccumulateAction::Set) {
    float before[kLanes];
    Vector<DType::F32>::load(args.acc, i, before);
    for (int e = 0; e < kLanes; ++e) value[e] = before[e] + value[e];
  }
  Vector<DType::F32>::store(args.sum, i, value);
}

__global__ void clip(const float* norm, const int32_t* updates, const float* scale, double max_norm,
                     float* coefficient, int32_t* new_updates) {
  const double size = *norm;
  const bool updates_now = isfinite(size) && size >= 0;
  const double factor = max_norm > 0 ? fmin(1.0, max_norm / (size + 1e-6)) : 1.0;
  const double unscaled = scale != nullptr ? factor / *scale : factor;
  *coefficient = updates_now ? static_cast<float>(unscaled) : 0.0f;
  *new_updates = updates_now ? *updates + 1 : *updates;
}

__global__ void update_scale(const float* scale, const int32_t* good, const float* norm,
                             LossScaleRule rule, float* new_scale, int32_t* new_good) {
  const LossScale now{*scale, *good};
  const LossScale next = *norm < 0 ? now : next_loss_scale(now, isfinite(*norm), rule);
  *new_scale = next.scale;
  *new_good = next.good;
}

struct Moments {
  float* w = nullptr;
  float* m = nullptr;
  float* v = nullptr;
};

struct AdamwArgs {
  Moments updated;  // in place
  Elements g;
  Elements low;  // the rounded weights, if they are kept
  const float* lr = nullptr;
  const float* coefficient = nullptr;
  const int32_t* updates = nullptr;
  int64_t n = 0;
  double beta1 = 0;
  double beta2 = 0;
  double decay = 0;
  float eps = 0;
  const int64_t* ranges = nullptr;      // ascending pairs begin,end of the elements that decay
  int64_t bounds = 0;                   // numbers in `ranges`; 0: all elements decay
  const int32_t* coordinate = nullptr;  // the index of w among the equal shards of a flat tensor
};

// Ranges that fit into the arguments of one launch.
struct RangeChunk {
  static constexpr int kSize = 256;
  int64_t bounds[kSize];
};

__global__ void store_ranges(RangeChunk chunk, int64_t count, int64_t* to) {
  if (threadIdx.x < count) to[threadIdx.x] = chunk.bounds[threadIdx.x];
}

// Whether a block of threads, all within one flat block, updates elements that decay: an odd number
// of bounds is at or below its first element.
__device__ bool decays(const AdamwArgs& args, int64_t element) {
  if (args.bounds == 0) return true;
  if (args.coordinate != nullptr) element += *args.coordinate * args.n;
  int64_t below = 0;
  int64_t above = args.bounds;
  while (below < above) {
    const int64_t middle = (below + above) / 2;
    if (args.ranges[middle] <= element) {
      below = middle + 1;
    } else {
      above = middle;
    }
  }
  return below % 2 == 1;
}

// Values shared by all elements of a block of threads. Powers are slow: one warp computes each.
struct AdamwScalars {
  float coefficient;
  float rate;
  float scale2;
  float keep;
};

__device__ AdamwScalars adamw_scalars(const AdamwArgs& args, int64_t first) {
  __shared__ AdamwScalars shared;
  const double updates = *args.updates;
  if (threadIdx.x == 0) {
    shared.rate = static_cast<float>(*args.lr / (1.0 - pow(args.beta1, updates)));
  } else if (threadIdx.x == 32) {
    shared.scale2 = static_cast<float>(1.0 / (1.0 - pow(args.beta2, updates)));
  } else if (threadIdx.x == 64) {
    shared.coefficient = *args.coefficient;
    shared.keep = decays(args, first) ? static_cast<float>(1.0 - *args.lr * args.decay) : 1.0f;
  }
  __syncthreads();
  return shared;
}

// v^ = v / (1 - beta2^count); w = w (1 - lr decay) - lr / (1 - beta1^count) m / (sqrt(v^) + eps).
__device__ void update(const AdamwArgs& args, const AdamwScalars& by, float gradient, float& w,
                       float& m, float& v) {
  const float g = gradient * by.coefficient;
  m = static_cast<float>(args.beta1) * m + static_cast<float>(1.0 - args.beta1) * g;
  v = static_cast<float>(args.beta2) * v + static_cast<float>(1.0 - args.beta2) * (g * g);
  w = w * by.keep - by.rate * m / (sqrtf(v * by.scale2) + args.eps);
}

__global__ void adamw(AdamwArgs args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x;
  const AdamwScalars by = adamw_scalars(args, first);
  const int64_t i = first + threadIdx.x;
  if (i >= args.n || by.coefficient == 0) return;
  update(args, by, args.g.get(i), args.updated.w[i], args.updated.m[i], args.updated.v[i]);
  if (args.low.data != nullptr) args.low.put(i, args.updated.w[i]);
}

// Rounds four adjacent elements and stores them at once.
__device__ void put_four(const Elements& to, int64_t i, float4 value) {
  const auto pair = [&](float low, float high) {
    if (to.dtype == DType::BF16) {
      const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
      return *reinterpret_cast<const uint32_t*>(&both);
    }
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  };
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(to.data) + i) =
      make_uint2(pair(value.x, value.y), pair(value.z, value.w));
}

// Four elements per thread.
__global__ void vector_adamw(AdamwArgs args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x * 4;
  const AdamwScalars by = adamw_scalars(args, first);
  const int64_t i = first + threadIdx.x * 4;
  if (i >= args.n || by.coefficient == 0) return;
  auto* w_at = reinterpret_cast<float4*>(args.updated.w + i);
  auto* m_at = reinterpret_cast<float4*>(args.updated.m + i);
  auto* v_at = reinterpret_cast<float4*>(args.updated.v + i);
  float4 w = *w_at;
  float4 m = *m_at;
  float4 v = *v_at;
  float4 g;
  if (args.g.dtype == DType::F32) {
    g = *reinterpret_cast<const float4*>(static_cast<const float*>(args.g.data) + i);
  } else {
    g = make_float4(args.g.get(i), args.g.get(i + 1), args.g.get(i + 2), args.g.get(i + 3));
  }
  update(args, by, g.x, w.x, m.x, v.x);
  update(args, by, g.y, w.y, m.y, v.y);
  update(args, by, g.z, w.z, m.z, v.z);
  update(args, by, g.w, w.w, m.w, v.w);
  *w_at = w;
  *m_at = m;
  *v_at = v;
  if (args.low.data != nullptr) put_four(args.low, i, w);
}

Moments moments(const Tensor& w, const Tensor& m, const Tensor& v) {
  return {w.as<float>(), m.as<float>(), v.as<float>()};
}

// Copies the ranges through launch arguments, which a captured graph stores by value.
void launch_store_ranges(const Launch& launch, const std::vector<int64_t>& ranges) {
  auto* to = static_cast<int64_t*>(launch.workspace);
  for (size_t first = 0; first < ranges.size(); first += RangeChunk::kSize) {
    RangeChunk chunk = {};
    const size_t count = std::min<size_t>(RangeChunk::kSize, ranges.size() - first);
    std::copy_n(ranges.begin() + static_cast<int64_t>(first), count, chunk.bounds);
    store_ranges<<<1, RangeChunk::kSize, 0, stream_of(launch)>>>(chunk, static_cast<int64_t>(count),
                                                                 to + first);
  }
}

AccumulateArgs accumulate_args(const Launch& launch) {
  const Tensor& sum = launch.results.at(0);
  return {.acc = launch.operands.at(0).as<float>(),
          .g = elements(launch.operands.at(1)),
          .micro = launch.operands.at(2).as<int32_t>(),
          .sum = sum.as<float>(),
          .n = sum.elements(),
          .level = launch.call->int_attr("level")};
}

AdamwArgs adamw_args(const Launch& launch) {
  const Call& call = *launch.call;
  AdamwArgs args;
  args.updated = moments(launch.results.at(0), launch.results.at(1), launch.results.at(2));
  args.g = elements(launch.operands.at(1));
  args.lr = launch.operands.at(4).as<float>();
  args.coefficient = launch.operands.at(5).as<float>();
  args.updates = launch.operands.at(6).as<int32_t>();
  args.n = launch.results.at(0).elements();
  args.beta1 = call.double_attr("beta1");
  args.beta2 = call.double_attr("beta2");
  args.decay = call.double_attr("decay");
  args.eps = static_cast<float>(call.double_attr("eps"));
  const std::vector<int64_t>& ranges = call.ints_attr("decayed");
  launch_store_ranges(launch, ranges);
  args.ranges = static_cast<const int64_t*>(launch.workspace);
  args.bounds = static_cast<int64_t>(ranges.size());
  const bool keeps_low = launch.results.size() > 3;  // adamw_cast
  if (keeps_low) args.low = elements(launch.results[3]);
  const size_t coordinate = keeps_low ? 8 : 7;
  if (launch.operands.size() > coordinate) {
    args.coordinate = launch.operands[coordinate].as<int32_t>();
  }
  return args;
}

}  // namespace

void launch_clear_at_start(const Tensor& acc, const Tensor& micro, const Launch& launch) {
  constexpr int64_t kMaxBlocks = 1056;  // 8 for each of 132 processors: threads loop
  const unsigned blocks = std::min<unsigned>(blocks_for(acc.elements(), kThreads), kMaxBlocks);
  clear_at_start<<<blocks, kThreads, 0, stream_of(launch)>>>(acc.as<float>(), micro.as<int32_t>(),
                                                             acc.elements());
}

void launch_accumulate(const Launch& launch) {
  const AccumulateArgs args = accumulate_args(launch);
  accumulate<<<blocks_for(args.n, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

void launch_vector_accumulate(const Launch& launch) {
  const AccumulateArgs args = accumulate_args(launch);
  vector_accumulate<<<vector_blocks(args.n), kThreads, 0, stream_of(launch)>>>(args);
}

void launch_clip(const Launch& launch) {
  const float* scale = launch.operands.size() > 2 ? launch.operands[2].as<float>() : nullptr;
  clip<<<1, 1, 0, stream_of(launch)>>>(
      launch.operands.at(0).as<float>(), launch.operands.at(1).as<int32_t>(), scale,
      launch.call->double_attr("max_norm"), launch.results.at(0).as<float>(),
      launch.results.at(1).as<int32_t>());
}

void launch_update_scale(const Launch& launch) {
  const Call& call = *launch.call;
  const LossScaleRule rule{call.double_attr("growth"), call.double_attr("backoff"),
                           call.int_attr("interval")};
  update_scale<<<1, 1, 0, stream_of(launch)>>>(
      launch.operands.at(0).as<float>(), launch.operands.at(1).as<int32_t>(),
      launch.operands.at(2).as<float>(), rule, launch.results.at(0).as<float>(),
      launch.results.at(1).as<int32_t>());
}

void launch_adamw(const Launch& launch) {
  const AdamwArgs args = adamw_args(launch);
  adamw<<<blocks_for(args.n, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

void launch_vector_adamw(const Launch& launch) {
  const AdamwArgs args = adamw_args(launch);
  vector_adamw<<<blocks_for(args.n, kThreads * 4), kThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace weft::cuda
