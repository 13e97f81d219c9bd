// layer_norm and rms_norm with their gradients: one block per row; the gradient of the weight is a
// sum over rows per column.
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/reduce.h"

namespace weft::cuda {

namespace {

struct NormArgs {
  Elements x, w, bias, y;
  float* mean = nullptr;  // nullptr: rms_norm
  float* rstd = nullptr;
  int64_t n = 0;
  float eps = 0;
};

__global__ void norm(NormArgs args) {
  const int64_t row = blockIdx.x;
  const int64_t first = row * args.n;
  float mean = 0;
  if (args.mean != nullptr) {
    float sum = 0;
    for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) sum += args.x.get(first + i);
    mean = block_sum(sum) / static_cast<float>(args.n);
  }
  float squares = 0;
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
    const float centred = args.x.get(first + i) - mean;
    squares += centred * centred;
  }
  const float variance = block_sum(squares) / static_cast<float>(args.n);
  const float rstd = 1.0f / sqrtf(variance + args.eps);
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
    float y = (args.x.get(first + i) - mean) * rstd * args.w.get(i);
    if (args.bias.data != nullptr) y += args.bias.get(i);
    args.y.put(first + i, y);
  }
  if (threadIdx.x == 0) {
    args.rstd[row] = rstd;
    if (args.mean != nullptr) args.mean[row] = mean;
  }
}

struct NormGradArgs {
  Elements dy, x, w, dx, dw;
  const float* mean = nullptr;  // nullptr: rms_norm
  const float* rstd = nullptr;
  int64_t rows = 0;
  int64_t n = 0;

  // The normalised value of element i of a row.
  __device__ float normal(int64_t row, int64_t i) const {
    const float centre = mean != nullptr ? mean[row] : 0.0f;
    return (x.get(row * n + i) - centre) * rstd[row];
  }
};

// With g = dy w and h the normalised x: dx = rstd (g - mean(g) - h mean(g h)); rms_norm has no
// mean(g).
__global__ void norm_grad_x(NormGradArgs args) {
  const int64_t row = blockIdx.x;
  const int64_t first = row * args.n;
  float sum = 0;
  float sum_normal = 0;
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
    const float g = args.dy.get(first + i) * args.w.get(i);
    sum += g;
    sum_normal += g * args.normal(row, i);
  }
  const float mean_normal = block_sum(sum_normal) / static_cast<float>(args.n);
  const float mean = args.mean != nullptr ? block_sum(sum) / static_cast<float>(args.n) : 0.0f;
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
    const float g = args.dy.get(first + i) * args.w.get(i);
    args.dx.put(first + i, args.rstd[row] * (g - mean - args.normal(row, i) * mean_normal));
  }
}

__global__ void norm_grad_w(NormGradArgs args) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float sum = column_sum(args.rows, col < args.n, [&](int64_t row) {
    return args.dy.get(row * args.n + col) * args.normal(row, col);
  });
  if (threadIdx.y == 0 && col < args.n) args.dw.put(col, sum);
}

void launch_norm(const Launch& launch, NormArgs args) {
  const Tensor& x = launch.operands.at(0);
  args.x = elements(x);
  args.w = elements(launch.operands.at(1));
  args.y = elements(launch.results.at(0));
  args.n = row_length(x);
  args.eps = static_cast<float>(launch.call->double_attr("eps"));
  norm<<<blocks_for(row_count(x), 1), kThreads, 0, stream_of(launch)>>>(args);
}

void launch_norm_grad(const Launch& launch, NormGradArgs args) {
  const Tensor& x = launch.operands.at(1);
  args.dy = elements(launch.operands.at(0));
  args.x = elements(x);
  args.w = elements(launch.operands.at(2));
  args.dx = elements(launch.results.at(0));
  args.dw = elements(launch.results.at(1));
  args.rows = row_count(x);
  args.n = row_length(x);
  norm_grad_x<<<blocks_for(args.rows, 1), kThreads, 0, stream_of(launch)>>>(args);
  norm_grad_w<<<blocks_for(args.n, 32), dim3(32, 32), 0, stream_of(launch)>>>(args);
}

}  // namespace

void launch_layer_norm(const Launch& launch) {
  NormArgs args;
  if (launch.operands.size() > 2) args.bias = elements(launch.operands[2]);
  args.mean = launch.results.at(1).as<float>();
  args.rstd = launch.results.at(2).as<float>();
  launch_norm(launch, args);
}

void launch_rms_norm(const Launch& launch) {
  NormArgs args;
  args.rstd = launch.results.at(1).as<float>();
  launch_norm(launch, args);
}

void launch_layer_norm_grad(const Launch& launch) {
  NormGradArgs args;
  args.mean = launch.operands.at(3).as<float>();
  args.rstd = launch.operands.at(4).as<float>();
  launch_norm_grad(launch, args);
}

void launch_rms_norm_grad(const Launch& launch) {
  NormGradArgs args;
  args.rstd = launch.operands.at(3).as<float>();
  launch_norm_grad(launch, args);
}

}  // namespace weft::cuda
