// router_loss and its gradient: one warp per token. One block then adds the losses of the tokens.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/experts/lanes.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/loss.h"

namespace weft::cuda {

namespace {

constexpr int kWarps = 8;

struct RouterLoss {
  const float* logits = nullptr;
  const float* counts = nullptr;
  const float* valid = nullptr;
  int64_t tokens = 0;
  int64_t experts = 0;
  float aux = 0;
  float z = 0;
  bool by_sigmoid = false;

  __device__ float score(float logit, float lse) const {
    return by_sigmoid ? 1.0f / (1.0f + expf(-logit)) : expf(logit - lse);
  }
};

RouterLoss router_loss_of(const Launch& launch, size_t logits, size_t counts) {
  RouterLoss loss;
  loss.logits = launch.operands.at(logits).as<float>();
  loss.counts = launch.operands.at(counts).as<float>();
  loss.valid = launch.operands.back().as<float>();
  loss.tokens = row_count(launch.operands[logits]);
  loss.experts = row_length(launch.operands[logits]);
  loss.aux = static_cast<float>(launch.call->double_attr("aux"));
  loss.z = static_cast<float>(launch.call->double_attr("z"));
  loss.by_sigmoid = launch.call->bool_attr("sigmoid");
  return loss;
}

// The token of this warp.
__device__ int64_t own_token() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
}

// Sums over the experts of a token.
struct ExpertSums {
  float divisor;  // of scores, so that they add up to 1
  float mean;     // of the counts, by the shares of the experts in the scores
  float balance;  // aux * experts / sum of counts
};

__device__ ExpertSums expert_sums(const RouterLoss& loss, const float* logits, float lse) {
  float scores = 0, weighted = 0, counts = 0;
  for (int64_t i = threadIdx.x; i < loss.experts; i += kWarp) {
    const float score = loss.score(logits[i], lse);
    scores += score;
    weighted += score * loss.counts[i];
    counts += loss.counts[i];
  }
  const float divisor = loss.by_sigmoid ? 1e-20f + warp_sum(scores) : 1.0f;
  return {divisor, warp_sum(weighted) / divisor,
          loss.aux * static_cast<float>(loss.experts) / warp_sum(counts)};
}

__device__ float log_sum_exp(const float* logits, int64_t n) {
  float largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < n; i += kWarp) largest = fmaxf(largest, logits[i]);
  largest = warp_reduce(largest, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kWarp) sum += expf(logits[i] - largest);
  return largest + logf(warp_sum(sum));
}

__global__ void router_loss(RouterLoss loss, float* losses, float* lse) {
  const int64_t token = own_token();
  if (token >= loss.tokens) return;
  const float* logits = loss.logits + token * loss.experts;
  const float own = log_sum_exp(logits, loss.experts);
  const ExpertSums sums = expert_sums(loss, logits, own);
  if (threadIdx.x != 0) return;
  lse[token] = own;
  losses[token] = sums.balance * sums.mean + loss.z * own * own;
}

__global__ void router_loss_grad(RouterLoss loss, const float* dloss, const float* lse,
                                 float* d_logits) {
  const int64_t token = own_token();
  if (token >= loss.tokens) return;
  const float* logits = loss.logits + token * loss.experts;
  float* d = d_logits + token * loss.experts;
  const float own = lse[token], factor = *dloss / *loss.valid;
  const ExpertSums sums = expert_sums(loss, logits, own);
  for (int64_t i = threadIdx.x; i < loss.experts; i += kWarp) {
    const float score = loss.score(logits[i], own);
    const float slope = loss.by_sigmoid ? score * (1.0f - score) / sums.divisor : score;
    const float balance = sums.balance * slope * (loss.counts[i] - sums.mean);
    d[i] = factor * (balance + 2.0f * loss.z * own * expf(logits[i] - own));
  }
}

}  // namespace

void launch_router_loss(const Launch& launch) {
  const RouterLoss loss = router_loss_of(launch, 0, 1);
  auto* losses = static_cast<float*>(launch.workspace);
  router_loss<<<blocks_for(loss.tokens, kWarps), dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
      loss, losses, launch.results.at(1).as<float>());
  CUDA_CHECK(cudaGetLastError());
  launch_total_loss(losses, loss.tokens, loss.valid, launch.results.at(0), stream_of(launch));
}

void launch_router_loss_grad(const Launch& launch) {
  const RouterLoss loss = router_loss_of(launch, 1, 2);
  router_loss_grad<<<blocks_for(loss.tokens, kWarps), dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
      loss, launch.operands.at(0).as<float>(), launch.operands.at(3).as<float>(),
      launch.results.at(0).as<float>());
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace weft::cuda
