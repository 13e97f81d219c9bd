// add, cast, gelu, gelu_grad, dropout and fused: one interpreter. The plain kernel has one thread
// per element, the vector kernel one per eight. A thread reads its elements of every operand before
// it writes, so the result may alias an operand of the same element size.
#include "runtime/cuda/elementwise/activations.h"
#include "runtime/cuda/elementwise/elementwise_program.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/random.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

struct ElementwiseTensors {
  Elements operand[ElementwiseProgram::kMaxOperands];
  Elements result;
  int64_t elements = 0;
  int64_t per_sample = 0;
};

__device__ float apply(const ElementwiseStep& step, const ElementwiseTensors& tensors, float left,
                       float right, int64_t i) {
  switch (step.op) {
    case ElementwiseOp::Add:
      return left + right;
    case ElementwiseOp::Cast:
      return left;
    case ElementwiseOp::Gelu:
      return gelu_value(step.result, left);
    case ElementwiseOp::GeluGrad:
      return gelu_grad_value(step.result, left, right);
    case ElementwiseOp::Dropout: {
      const auto* rng = static_cast<const int32_t*>(tensors.operand[step.right].data);
      return step.drop.apply(left, drop_stream(rng, step.drop).word(i, tensors.per_sample));
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

// A program small enough for registers.
struct SmallProgram {
  int operands = 0;
  int steps = 0;
  ElementwiseStep step[kVectorSteps];
  Elements operand[kVectorOperands];
  bool floating[kVectorOperands];  // the others hold random states
  bool sharded = false;            // one of them is that of a shard
  Elements result;
  int64_t elements = 0;
  int64_t per_sample = 0;
};

// Computes the values before they are rounded to the type of the step.
template <bool kSharded>
__device__ void apply_vector(const SmallProgram& program, const ElementwiseStep& step,
                             const float (&left)[kLanes], const float (&right)[kLanes], int64_t i,
                             float (&result)[kLanes]) {
  switch (step.op) {
    case ElementwiseOp::Add:
      for (int e = 0; e < kLanes; ++e) result[e] = left[e] + right[e];
      break;
    case ElementwiseOp::Cast:
      for (int e = 0; e < kLanes; ++e) result[e] = left[e];
      break;
    case ElementwiseOp::Gelu:
      for (int e = 0; e < kLanes; ++e) result[e] = gelu_value(step.result, left[e]);
      break;
    case ElementwiseOp::GeluGrad:
      for (int e = 0; e < kLanes; ++e) result[e] = gelu_grad_value(step.result, left[e], right[e]);
      break;
    case ElementwiseOp::Dropout: {
      const auto* rng = static_cast<const int32_t*>(program.operand[step.right].data);
      const DropStream stream = drop_stream(rng, step.drop, kSharded && step.drop.sharded);
      for (int e = 0; e < kLanes; e += 4) {
        const PhiloxBlock words = stream.block(i + e, program.per_sample);
        for (int w = 0; w < 4; ++w) result[e + w] = step.drop.apply(left[e + w], words.word[w]);
      }
      break;
    }
  }
}

// A single op, for bf16 tensors or for any type: no program to interpret.
template <bool kBf16, bool kSharded>
__global__ void run_vector_op(SmallProgram program) {
  const int64_t i = vector_start();
  if (i >= program.elements) return;
  float left[kLanes];
  float right[kLanes];
  float result[kLanes];
  const bool two = program.operands > 1 && program.floating[1];
  if constexpr (kBf16) {
    Vector<DType::BF16>::load(program.operand[0].data, i, left);
    if (two) Vector<DType::BF16>::load(program.operand[1].data, i, right);
    apply_vector<kSharded>(program, program.step[0], left, right, i, result);
    Vector<DType::BF16>::store(program.result.data, i, result);
  } else {
    load_vector(program.operand[0], i, left);
    if (two) load_vector(program.operand[1], i, right);
    apply_vector<kSharded>(program, program.step[0], left, right, i, result);
    store_vector(program.result, i, result);
  }
}

// Values are an array in registers, which must not be indexed at run time: all of them are compared
// instead.
template <int kValues>
__device__ void pick(const float (&values)[kValues][kLanes], int index, float (&to)[kLanes]) {
#pragma unroll
  for (int v = 0; v < kValues; ++v) {
    if (v == index) {
#pragma unroll
      for (int e = 0; e < kLanes; ++e) to[e] = values[v][e];
    }
  }
}

// A chain: operand o is value o, step s is value kOperands + s.
template <int kOperands, int kSteps, bool kSharded>
__global__ void run_vector_chain(SmallProgram program) {
  const int64_t i = vector_start();
  if (i >= program.elements) return;
  float values[kOperands + kSteps][kLanes];
#pragma unroll
  for (int o = 0; o < kOperands; ++o) {
    if (o < program.operands && program.floating[o]) {
      load_vector(program.operand[o], i, values[o]);
    }
  }
  const auto place = [&](int index) {
    return index < program.operands ? index : index - program.operands + kOperands;
  };
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (s >= program.steps) break;
    const ElementwiseStep& step = program.step[s];
    float left[kLanes];
    float right[kLanes];
    pick(values, place(step.left), left);
    if (step.op != ElementwiseOp::Dropout) pick(values, place(step.right), right);
    apply_vector<kSharded>(program, step, left, right, i, values[kOperands + s]);
    if (s + 1 < program.steps) round_vector(step.result, values[kOperands + s]);
  }
  float result[kLanes];
  pick(values, kOperands + program.steps - 1, result);
  store_vector(program.result, i, result);
}

template <bool kSharded>
void run_program(const SmallProgram& program, bool bf16, cudaStream_t stream) {
  const unsigned blocks = vector_blocks(program.elements);
  if (program.steps == 1 && bf16) {
    run_vector_op<true, kSharded><<<blocks, kThreads, 0, stream>>>(program);
  } else if (program.steps == 1) {
    run_vector_op<false, kSharded><<<blocks, kThreads, 0, stream>>>(program);
  } else if (program.steps <= 2 && program.operands <= 3) {
    run_vector_chain<3, 2, kSharded><<<blocks, kThreads, 0, stream>>>(program);
  } else {
    run_vector_chain<kVectorOperands, kVectorSteps, kSharded>
        <<<blocks, kThreads, 0, stream>>>(program);
  }
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

void launch_vector_elementwise(const Launch& launch) {
  const ElementwiseProgram full = elementwise_program(*launch.call);
  const Tensor& result = launch.results.at(0);
  SmallProgram program;
  program.operands = full.operands;
  program.steps = full.steps;
  for (int s = 0; s < full.steps; ++s) {
    program.step[s] = full.step[s];
    program.sharded |= full.step[s].drop.sharded;
  }
  for (int o = 0; o < full.operands; ++o) {
    const Tensor& operand = launch.operands.at(static_cast<size_t>(o));
    program.operand[o] = elements(operand);
    program.floating[o] = is_floating(operand.dtype);
  }
  program.result = elements(result);
  program.elements = result.elements();
  program.per_sample = result.shape.empty() ? 1 : program.elements / result.shape[0];
  bool bf16 = result.dtype == DType::BF16;
  for (const Tensor& operand : launch.operands) {
    bf16 = bf16 && (operand.dtype == DType::BF16 || !is_floating(operand.dtype));
  }
  program.sharded ? run_program<true>(program, bf16, stream_of(launch))
                  : run_program<false>(program, bf16, stream_of(launch));
}

}  // namespace weft::cuda
