// cross_entropy and its gradient. One block per row makes lse and the row's loss; one block then
// adds the rows in a fixed tree. A target beyond the vocabulary stops the kernel.
#include <cmath>

#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/reduce.h"

namespace weft::cuda {

namespace {

__global__ void row_loss(Elements logits, const int32_t* targets, float* lse, float* losses,
                         int64_t n) {
  const int64_t row = blockIdx.x;
  const int64_t first = row * n;
  float largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    largest = fmaxf(largest, logits.get(first + i));
  }
  const float maximum = block_max(largest);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    sum += expf(logits.get(first + i) - maximum);
  const float total = block_sum(sum);
  if (threadIdx.x != 0) return;
  const int64_t target = targets[row];
  if (target >= n) __trap();
  lse[row] = maximum + logf(total);
  losses[row] = target < 0 ? 0.0f : lse[row] - logits.get(first + target);
}

__global__ void total_loss(const float* losses, const float* valid, float* loss, int64_t rows) {
  float sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) sum += losses[row];
  const float total = block_sum(sum);
  if (threadIdx.x == 0) *loss = total / *valid;
}

struct LossGradArgs {
  const float* dloss = nullptr;
  Elements logits;
  const int32_t* targets = nullptr;
  const float* lse = nullptr;
  const float* valid = nullptr;
  Elements dlogits;
  int64_t elements = 0;
  int64_t n = 0;
};

__global__ void loss_grad(LossGradArgs args) {
  const int64_t i = global_thread();
  if (i >= args.elements) return;
  const int64_t row = i / args.n;
  const int64_t target = args.targets[row];
  float grad = 0;
  if (target >= 0) {
    const float p = expf(args.logits.get(i) - args.lse[row]);
    grad = (p - (i % args.n == target ? 1.0f : 0.0f)) * (*args.dloss / *args.valid);
  }
  args.dlogits.put(i, grad);
}

}  // namespace

int64_t cross_entropy_workspace(const Call& call) {
  return count(call.type(1).shape) * static_cast<int64_t>(sizeof(float));
}

void launch_cross_entropy(const Launch& launch) {
  const Tensor& logits = launch.operands.at(0);
  const int64_t rows = row_count(logits);
  auto* losses = static_cast<float*>(launch.workspace);
  row_loss<<<blocks_for(rows, 1), kThreads, 0, stream_of(launch)>>>(
      elements(logits), launch.operands.at(1).as<int32_t>(), launch.results.at(1).as<float>(),
      losses, row_length(logits));
  total_loss<<<1, 1024, 0, stream_of(launch)>>>(losses, launch.operands.at(2).as<float>(),
                                                launch.results.at(0).as<float>(), rows);
}

void launch_cross_entropy_grad(const Launch& launch) {
  const Tensor& logits = launch.operands.at(1);
  LossGradArgs args;
  args.dloss = launch.operands.at(0).as<float>();
  args.logits = elements(logits);
  args.targets = launch.operands.at(2).as<int32_t>();
  args.lse = launch.operands.at(3).as<float>();
  args.valid = launch.operands.at(4).as<float>();
  args.dlogits = elements(launch.results.at(0));
  args.elements = logits.elements();
  args.n = row_length(logits);
  loss_grad<<<blocks_for(args.elements, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace weft::cuda
