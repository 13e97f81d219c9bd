// add, cast, gelu, gelu_grad, dropout and fused: one interpreter, one thread per element. A thread
// reads its element of every operand before it writes, so the result may lie over an operand of the
// same element size.
#include "runtime/cuda/elements.h"
#include "runtime/cuda/elementwise_program.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/random.h"

namespace weft::cuda {

namespace {

struct ElementwiseTensors {
  Elements operand[ElementwiseProgram::kMaxOperands];
  Elements result;
  int64_t elements = 0;
  int64_t per_sample = 0;
};

// gelu(x) = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form without its
// cancellation.
constexpr float kGeluScale = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

__device__ float gelu_gate(float x) {
  return 1.0f / (1.0f + expf(-kGeluScale * (x + kGeluCubic * (x * x * x))));
}

__device__ float gelu_grad(float dy, float x) {
  const float s = gelu_gate(x);
  const float slope = kGeluScale * (1.0f + 3.0f * kGeluCubic * (x * x));
  return dy * (s + x * (s * (1.0f - s)) * slope);
}

__device__ float apply(const ElementwiseStep& step, const ElementwiseTensors& tensors, float left,
                       float right, int64_t i) {
  switch (step.op) {
    case ElementwiseOp::Add:
      return left + right;
    case ElementwiseOp::Cast:
      return left;
    case ElementwiseOp::Gelu:
      return left * gelu_gate(left);
    case ElementwiseOp::GeluGrad:
      return gelu_grad(left, right);
    case ElementwiseOp::Dropout: {
      const Dropout site{static_cast<const int32_t*>(tensors.operand[step.right].data), step.rate,
                         step.scale, step.stream};
      return drop(site, left, i, tensors.per_sample);
    }
  }
  return 0;
}

__global__ void run_elementwise(ElementwiseProgram program, ElementwiseTensors tensors) {
  const int64_t i = global_thread();
  if (i >= tensors.elements) return;
  float value[ElementwiseProgram::kMaxSteps];
  for (int s = 0; s < program.steps; ++s) {
    const ElementwiseStep& step = program.step[s];
    const auto read = [&](int index, const float* earlier) {
      return index < program.operands ? tensors.operand[index].get(i)
                                      : earlier[index - program.operands];
    };
    const float left = read(step.left, value);
    const float right = step.op == ElementwiseOp::Dropout ? 0.0f : read(step.right, value);
    value[s] = round_to(step.result, apply(step, tensors, left, right, i));
  }
  tensors.result.put(i, value[program.steps - 1]);
}

}  // namespace

void launch_elementwise(const Launch& launch) {
  const ElementwiseProgram program = elementwise_program(*launch.call);
  const Tensor& result = launch.results.at(0);
  ElementwiseTensors tensors;
  for (size_t i = 0; i < launch.operands.size(); ++i) {
    tensors.operand[i] = elements(launch.operands[i]);
  }
  tensors.result = elements(result);
  tensors.elements = result.elements();
  tensors.per_sample = result.shape.empty() ? 1 : tensors.elements / result.shape[0];
  run_elementwise<<<blocks_for(tensors.elements, kThreads), kThreads, 0, stream_of(launch)>>>(
      program, tensors);
}

}  // namespace weft::cuda
