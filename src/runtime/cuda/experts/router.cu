// Which experts a token goes to: a warp per token, its experts ranked in shared memory.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/experts/lanes.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

constexpr int kWarps = kRouterWarps;
constexpr int64_t kClosed = INT64_MIN;

struct Scoring {
  const float* logits = nullptr;
  int64_t tokens = 0;
  int experts = 0, top_k = 0;
  bool by_sigmoid = false, normalize = false;
  float scale = 1;
};

// Scores in f32 of a token's logits: what all lanes need for any of them.
struct Scores {
  const float* logits;
  bool by_sigmoid;
  float top = 0, sum = 1;

  __device__ Scores(const float* own, int experts, bool sigmoid)
      : logits(own), by_sigmoid(sigmoid) {
    if (by_sigmoid) return;
    float most = -INFINITY;
    for (int i = threadIdx.x; i < experts; i += kWarp) most = fmaxf(most, logits[i]);
    top = warp_reduce(most, [](float a, float b) { return fmaxf(a, b); });
    float terms = 0;
    for (int i = threadIdx.x; i < experts; i += kWarp) terms += expf(logits[i] - top);
    sum = warp_sum(terms);
  }

  __device__ float of(int expert) const {
    const float x = logits[expert];
    return by_sigmoid ? 1.0f / (1.0f + expf(-x)) : expf(x - top) / sum;
  }
};

// Numbers in the order of the values, above kClosed; zeros of both signs are equal, NaNs lowest.
__device__ int64_t rank_of(double value) {
  if (isnan(value)) return kClosed + 1;
  const int64_t bits = __double_as_longlong(value + 0.0);
  return bits < 0 ? bits ^ INT64_MAX : bits;
}
__device__ double value_of(int64_t rank) {
  if (rank == kClosed + 1) return -INFINITY;
  return __longlong_as_double(rank < 0 ? rank ^ INT64_MAX : rank);
}

// Closes the highest of n ranks, the first of equal ones, and returns its index to all lanes.
__device__ int take_best(int64_t* ranks, int n) {
  int64_t rank = kClosed;
  int index = n;
  for (int i = threadIdx.x; i < n; i += kWarp) {
    if (index < n && ranks[i] <= rank) continue;
    rank = ranks[i];
    index = i;
  }
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const int64_t other = __shfl_xor_sync(0xffffffff, rank, half);
    const int at = __shfl_xor_sync(0xffffffff, index, half);
    if (other > rank || (other == rank && at < index)) {
      rank = other;
      index = at;
    }
  }
  __syncwarp();
  if (threadIdx.x == 0) ranks[index] = kClosed;
  __syncwarp();
  return index;
}

// Closes the experts of all but the `kept` groups with the largest sums of two values.
__device__ void close_groups(int64_t* ranks, int experts, int groups, int kept, int64_t* order) {
  const int size = experts / groups;
  for (int group = threadIdx.x; group < groups; group += kWarp) {
    double first = -INFINITY, second = -INFINITY;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      const double value = value_of(ranks[i]);
      second = fmax(second, fmin(first, value));
      first = fmax(first, value);
    }
    order[group] = rank_of(size > 1 ? first + second : first);
  }
  __syncwarp();
  for (int i = 0; i < kept; ++i) take_best(order, groups);
  for (int i = threadIdx.x; i < experts; i += kWarp) {
    if (order[i / size] != kClosed) ranks[i] = kClosed;
  }
  __syncwarp();
}

// Ranks by the logits, whose order the scores keep, though they may round to equal numbers; by the
// scores in f64 if a bias or groups matter. So choices are the same as those of any backend, up to
// ties of f64.
__device__ void rank_experts(const Scoring& scoring, const float* own, const float* bias,
                             int groups, int64_t* ranks) {
  const bool by_logits = bias == nullptr && groups == 1;
  double top = 0, sum = 1;
  if (!by_logits && !scoring.by_sigmoid) {
    float most = -INFINITY;
    for (int i = threadIdx.x; i < scoring.experts; i += kWarp) most = fmaxf(most, own[i]);
    top = warp_reduce(most, [](float a, float b) { return fmaxf(a, b); });
    double terms = 0;
    for (int i = threadIdx.x; i < scoring.experts; i += kWarp) {
      terms += exp(static_cast<double>(own[i]) - top);
    }
    sum = warp_sum(terms);
  }
  for (int i = threadIdx.x; i < scoring.experts; i += kWarp) {
    double value = own[i];
    if (!by_logits) {
      value = scoring.by_sigmoid ? 1 / (1 + exp(-value)) : exp(value - top) / sum;
      if (bias != nullptr) value += bias[i];
    }
    ranks[i] = rank_of(value);
  }
  __syncwarp();
}

// The part of the divisor that is not a score.
__device__ float first_divisor(const Scoring& scoring) {
  if (!scoring.normalize) return 1;
  return scoring.by_sigmoid ? 1e-20f : 0.0f;
}

__global__ void router(Scoring scoring, const float* bias, int groups, int kept, float* weights,
                       int32_t* index) {
  extern __shared__ int64_t shared[];
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (token >= scoring.tokens) return;
  int64_t* ranks = shared + threadIdx.y * (scoring.experts + groups);
  const float* own = scoring.logits + token * scoring.experts;
  rank_experts(scoring, own, bias, groups, ranks);
  if (groups > 1) close_groups(ranks, scoring.experts, groups, kept, ranks + scoring.experts);
  const Scores scores(own, scoring.experts, scoring.by_sigmoid);
  int32_t* chosen = index + token * scoring.top_k;
  float divisor = first_divisor(scoring);
  for (int i = 0; i < scoring.top_k; ++i) {
    const int best = take_best(ranks, scoring.experts);
    if (threadIdx.x == 0) chosen[i] = best;
    if (scoring.normalize) divisor += scores.of(best);
  }
  __syncwarp();
  for (int i = threadIdx.x; i < scoring.top_k; i += kWarp) {
    weights[token * scoring.top_k + i] = scoring.scale * scores.of(chosen[i]) / divisor;
  }
}

__global__ void router_grad(Scoring scoring, const float* d_weights, const int32_t* index,
                            float* d_logits) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (token >= scoring.tokens) return;
  const Scores scores(scoring.logits + token * scoring.experts, scoring.experts,
                      scoring.by_sigmoid);
  const int32_t* chosen = index + token * scoring.top_k;
  const float* own = d_weights + token * scoring.top_k;
  float divisor = first_divisor(scoring);
  for (int i = 0; scoring.normalize && i < scoring.top_k; ++i) divisor += scores.of(chosen[i]);
  float mean = 0;  // of the gradients of the weights, by their share
  for (int i = 0; i < scoring.top_k; ++i) mean += own[i] * (scores.of(chosen[i]) / divisor);
  // Shares of a sum do not change if all scores do.
  const float dot = scoring.normalize ? 0.0f : scoring.scale * mean;
  for (int i = threadIdx.x; i < scoring.experts; i += kWarp) {
    float d = 0;
    for (int j = 0; j < scoring.top_k; ++j) {
      if (chosen[j] == i) d = scoring.scale * (own[j] - (scoring.normalize ? mean : 0)) / divisor;
    }
    const float score = scores.of(i);
    d_logits[token * scoring.experts + i] =
        scoring.by_sigmoid ? d * (score * (1.0f - score)) : score * (d - dot);
  }
}

Scoring scoring_of(const Launch& launch, const Tensor& logits, const Tensor& index) {
  Scoring scoring;
  scoring.logits = logits.as<const float>();
  scoring.tokens = row_count(logits);
  scoring.experts = static_cast<int>(row_length(logits));
  scoring.top_k = static_cast<int>(row_length(index));
  scoring.by_sigmoid = launch.call->bool_attr("sigmoid");
  scoring.normalize = launch.call->bool_attr("normalize");
  scoring.scale = static_cast<float>(launch.call->double_attr("scale"));
  return scoring;
}

}  // namespace

void launch_router(const Launch& launch) {
  const Scoring scoring = scoring_of(launch, launch.operands.at(0), launch.results.at(1));
  const float* bias = launch.operands.size() > 1 ? launch.operands[1].as<const float>() : nullptr;
  router<<<blocks_for(scoring.tokens, kWarps), dim3(kWarp, kWarps), router_shared(*launch.call),
           stream_of(launch)>>>(scoring, bias, static_cast<int>(launch.call->int_attr("groups")),
                                static_cast<int>(launch.call->int_attr("keep_groups")),
                                launch.results.at(0).as<float>(),
                                launch.results.at(1).as<int32_t>());
  CUDA_CHECK(cudaGetLastError());
}

void launch_router_grad(const Launch& launch) {
  const Scoring scoring = scoring_of(launch, launch.operands.at(1), launch.operands.at(2));
  router_grad<<<blocks_for(scoring.tokens, kWarps), dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
      scoring, launch.operands.at(0).as<const float>(), launch.operands.at(2).as<const int32_t>(),
      launch.results.at(0).as<float>());
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace weft::cuda
