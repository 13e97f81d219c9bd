// How often experts are chosen, and what follows from it at the end of a step.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

// Sums of small integers are exact in f32, in any order.
__global__ void count_experts(const int32_t* index, int64_t n, int experts, float* counts) {
  extern __shared__ int32_t shared[];
  for (int e = threadIdx.x; e < experts; e += blockDim.x) shared[e] = 0;
  __syncthreads();
  for (int64_t i = global_thread(); i < n; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    atomicAdd(shared + index[i], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    if (shared[e] > 0) atomicAdd(counts + e, static_cast<float>(shared[e]));
  }
}

__global__ void count_lost(const int32_t* at, int64_t n, float* lost) {
  int32_t own = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) own += at[i] < 0 ? 1 : 0;
  __shared__ int32_t sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, own);
  __syncthreads();
  if (threadIdx.x == 0) *lost = static_cast<float>(sum);
}

__global__ void guard_norm(const float* norm, const float* lost, int64_t n, float* guarded) {
  bool any = false;
  for (int64_t i = 0; i < n; ++i) any |= lost[i] > 0;
  *guarded = any ? -1.0f : *norm;
}

__global__ void balance_router(const float* counts, const float* coefficient, int experts,
                               float rate, float* bias) {
  if (*coefficient == 0) return;
  double sum = 0;
  for (int e = 0; e < experts; ++e) sum += counts[e];
  const double mean = sum / experts;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    bias[e] += counts[e] < mean ? rate : counts[e] > mean ? -rate : 0.0f;
  }
}

}  // namespace

void launch_expert_counts(const Launch& launch) {
  const int experts = static_cast<int>(launch.call->int_attr("experts"));
  const Tensor& counts = launch.results.at(0);
  const size_t bytes = counts.elements() * sizeof(float);
  CUDA_CHECK(cudaMemsetAsync(counts.data, 0, bytes, stream_of(launch)));
  float* layer = counts.as<float>();
  for (const Tensor& index : launch.operands) {
    count_experts<<<blocks_for(index.elements(), 4 * kThreads), kThreads, experts * sizeof(int32_t),
                    stream_of(launch)>>>(index.as<const int32_t>(), index.elements(), experts,
                                         layer);
    CUDA_CHECK(cudaGetLastError());
    layer += experts;
  }
}

void launch_lost_rows(const Launch& launch) {
  float* layer = launch.results.at(0).as<float>();
  for (const Tensor& at : launch.operands) {
    count_lost<<<1, kThreads, 0, stream_of(launch)>>>(at.as<const int32_t>(), at.elements(),
                                                      layer++);
    CUDA_CHECK(cudaGetLastError());
  }
}

void launch_guard_norm(const Launch& launch) {
  const Tensor& lost = launch.operands.at(1);
  guard_norm<<<1, 1, 0, stream_of(launch)>>>(launch.operands[0].as<const float>(),
                                             lost.as<const float>(), lost.elements(),
                                             launch.results.at(0).as<float>());
  CUDA_CHECK(cudaGetLastError());
}

void launch_balance_router(const Launch& launch) {
  const int experts = static_cast<int>(row_length(launch.operands.at(0)));
  const float rate = static_cast<float>(launch.call->double_attr("rate"));
  const float* counts = launch.operands[0].as<const float>();
  for (const Tensor& bias : launch.results) {
    balance_router<<<1, kThreads, 0, stream_of(launch)>>>(
        counts, launch.operands.at(1).as<const float>(), experts, rate, bias.as<float>());
    CUDA_CHECK(cudaGetLastError());
    counts += experts;
  }
}

}  // namespace weft::cuda
