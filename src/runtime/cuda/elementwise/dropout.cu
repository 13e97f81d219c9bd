// dropout, alone or added to a residual. Drawing takes about as long as reading and writing, so a
// thread keeps the loads of several vectors in flight while it draws.
#include "runtime/cuda/elementwise/elementwise_program.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/random.h"
#include "runtime/cuda/reduction/philox_batch.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

struct DropArgs {
  const void* x = nullptr;
  const void* residual = nullptr;  // added to the result; null: none
  void* result = nullptr;
  const int32_t* rng = nullptr;
  DropRule rule;
  int64_t elements = 0;
  int64_t per_sample = 0;
};

template <DType kType, bool kAdds>
struct DropVectors {
  static constexpr int kVectors = kType == DType::F32 ? 2 : 4;  // per thread
  using V = Vector<kType>;

  static __device__ void run(const DropArgs& args) {
    const int64_t stride = static_cast<int64_t>(blockDim.x) * kLanes;
    const int64_t first = blockIdx.x * kVectors * stride + threadIdx.x * kLanes;
    typename V::Raw x[kVectors];
    typename V::Raw residual[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = first + v * stride;
      if (i >= args.elements) break;
      x[v] = V::fetch(args.x, i);
      if constexpr (kAdds) residual[v] = V::fetch(args.residual, i);
    }
    const DropStream stream = drop_stream(args.rng, args.rule);
#pragma unroll
    for (int v = 0; v < kVectors; v += 2) {
      const int64_t i = first + v * stride;
      PhiloxBlock words[4];  // of two vectors
      for (int b = 0; b < 4; ++b) {
        words[b] = stream.counter(i + b / 2 * stride + b % 2 * 4, args.per_sample);
      }
      philox_batch(words, stream.key);
      finish(args, i, x[v], residual[v], words);
      finish(args, i + stride, x[v + 1], residual[v + 1], words + 2);
    }
  }

  static __device__ void finish(const DropArgs& args, int64_t i, const typename V::Raw& x,
                                const typename V::Raw& residual, const PhiloxBlock* words) {
    if (i >= args.elements) return;
    float value[kLanes];
    V::unpack(x, value);
    for (int e = 0; e < kLanes; ++e) {
      value[e] = args.rule.apply(value[e], words[e / 4].word[e % 4]);
    }
    if constexpr (kAdds) {
      float sum[kLanes];
      V::unpack(residual, sum);
      round_vector(kType, value);
      for (int e = 0; e < kLanes; ++e) value[e] = sum[e] + value[e];
    }
    V::store(args.result, i, value);
  }
};

template <DType kType, bool kAdds>
__global__ void drop_vectors(DropArgs args) {
  DropVectors<kType, kAdds>::run(args);
}

template <bool kAdds>
void run(const Launch& launch, DropArgs args) {
  const Tensor& result = launch.results.at(0);
  args.result = result.data;
  args.elements = result.elements();
  args.per_sample = result.shape.empty() ? args.elements : args.elements / result.shape[0];
  with_dtype(result.dtype, [&](auto type) {
    constexpr DType kType = decltype(type)::kValue;
    constexpr int64_t kShare = DropVectors<kType, kAdds>::kVectors * kLanes;
    const unsigned blocks = blocks_for((args.elements + kShare - 1) / kShare, kThreads);
    drop_vectors<kType, kAdds><<<blocks, kThreads, 0, stream_of(launch)>>>(args);
  });
}

}  // namespace

void launch_vector_dropout(const Launch& launch) {
  DropArgs args;
  args.x = launch.operands.at(0).data;
  args.rng = launch.operands.at(1).as<int32_t>();
  args.rule = drop_rule(launch.call->double_attr("rate"), launch.call->int_attr("stream"));
  run<false>(launch, args);
}

void launch_dropout_add(const Launch& launch) {
  const DropoutAdd places = *dropout_add(elementwise_program(*launch.call));
  DropArgs args;
  args.x = launch.operands.at(places.dropped).data;
  args.residual = launch.operands.at(places.added).data;
  args.rng = launch.operands.at(places.rng).as<int32_t>();
  args.rule = places.rule;
  run<true>(launch, args);
}

}  // namespace weft::cuda
