// add, cast, gelu and gelu_grad. The plain kernel has one thread per element, the vector kernel one
// per eight. A thread reads its elements of every operand before it writes, so the result may alias
// an operand of the same element size.
#include "runtime/cuda/elementwise/activations.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

// One element of an op, before it is rounded to the type of the result.
struct Add {
  static constexpr int kOperands = 2;
  static __device__ float apply(DType, float a, float b) { return a + b; }
};

struct Cast {
  static constexpr int kOperands = 1;
  static __device__ float apply(DType, float x, float) { return x; }
};

struct Gelu {
  static constexpr int kOperands = 1;
  static __device__ float apply(DType result, float x, float) { return gelu_value(result, x); }
};

struct GeluGrad {
  static constexpr int kOperands = 2;
  static __device__ float apply(DType result, float dy, float x) {
    return gelu_grad_value(result, dy, x);
  }
};

struct ElementwiseArgs {
  Elements left;
  Elements right;  // of an op of two operands
  Elements result;
  int64_t elements = 0;
};

template <class Op>
__global__ void run_elementwise(ElementwiseArgs args) {
  const int64_t i = global_thread();
  if (i >= args.elements) return;
  const float left = args.left.get(i);
  const float right = Op::kOperands > 1 ? args.right.get(i) : 0.0f;
  args.result.put(i, Op::apply(args.result.dtype, left, right));
}

// For bf16 tensors or for any type.
template <class Op, bool kBf16>
__global__ void run_vector(ElementwiseArgs args) {
  const int64_t i = vector_start();
  if (i >= args.elements) return;
  const auto load = [&](const Elements& from, float(&value)[kLanes]) {
    if constexpr (kBf16) {
      Vector<DType::BF16>::load(from.data, i, value);
    } else {
      load_vector(from, i, value);
    }
  };
  float value[kLanes];
  float right[kLanes] = {};
  load(args.left, value);
  if constexpr (Op::kOperands > 1) load(args.right, right);
  const DType dtype = kBf16 ? DType::BF16 : args.result.dtype;
  for (int e = 0; e < kLanes; ++e) value[e] = Op::apply(dtype, value[e], right[e]);
  if constexpr (kBf16) {
    Vector<DType::BF16>::store(args.result.data, i, value);
  } else {
    store_vector(args.result, i, value);
  }
}

ElementwiseArgs args_of(const Launch& launch) {
  ElementwiseArgs args;
  args.left = elements(launch.operands.at(0));
  if (launch.operands.size() > 1) args.right = elements(launch.operands[1]);
  args.result = elements(launch.results.at(0));
  args.elements = launch.results[0].elements();
  return args;
}

template <class Op>
void launch_plain(const Launch& launch) {
  const ElementwiseArgs args = args_of(launch);
  run_elementwise<Op>
      <<<blocks_for(args.elements, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

template <class Op>
void launch_vector(const Launch& launch) {
  const ElementwiseArgs args = args_of(launch);
  const bool bf16 = args.result.dtype == DType::BF16 && args.left.dtype == DType::BF16;
  const auto kernel = bf16 ? run_vector<Op, true> : run_vector<Op, false>;
  kernel<<<vector_blocks(args.elements), kThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace

void launch_add(const Launch& launch) {
  launch_plain<Add>(launch);
}

void launch_vector_add(const Launch& launch) {
  launch_vector<Add>(launch);
}

void launch_cast(const Launch& launch) {
  launch_plain<Cast>(launch);
}

void launch_vector_cast(const Launch& launch) {
  launch_vector<Cast>(launch);
}

void launch_gelu(const Launch& launch) {
  launch_plain<Gelu>(launch);
}

void launch_vector_gelu(const Launch& launch) {
  launch_vector<Gelu>(launch);
}

void launch_gelu_grad(const Launch& launch) {
  launch_plain<GeluGrad>(launch);
}

void launch_vector_gelu_grad(const Launch& launch) {
  launch_vector<GeluGrad>(launch);
}

}  // namespace weft::cuda
