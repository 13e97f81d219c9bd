// dropout, alone or added to a residual, and the random state of a shard. Drawing takes about as
// long as reading and writing, so a thread keeps the loads of several vectors in flight while it
// draws.
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

template <DType kType, bool kAdds, bool kSharded>
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
    const DropStream stream = drop_stream(args.rng, args.rule, kSharded);
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

template <DType kType, bool kAdds, bool kSharded>
__global__ void drop_vectors(DropArgs args) {
  DropVectors<kType, kAdds, kSharded>::run(args);
}

template <bool kAdds, bool kSharded>
void run_as(const Launch& launch, DropArgs args) {
  const Tensor& result = launch.results.at(0);
  args.result = result.data;
  args.elements = result.elements();
  args.per_sample = result.shape.empty() ? args.elements : args.elements / result.shape[0];
  with_dtype(result.dtype, [&](auto type) {
    constexpr DType kType = decltype(type)::kValue;
    constexpr int64_t kShare = DropVectors<kType, kAdds, kSharded>::kVectors * kLanes;
    const unsigned blocks = blocks_for((args.elements + kShare - 1) / kShare, kThreads);
    drop_vectors<kType, kAdds, kSharded><<<blocks, kThreads, 0, stream_of(launch)>>>(args);
  });
}

template <bool kAdds>
void run(const Launch& launch, const DropArgs& args) {
  args.rule.sharded ? run_as<kAdds, true>(launch, args) : run_as<kAdds, false>(launch, args);
}

// Words `first` and `first` + 1 are set. The others are copied; what `rng` lacks is one shard, {0,
// 1}.
struct ShardRng {
  const int32_t* rng = nullptr;
  unsigned words = 4;  // of rng
  const int32_t* coordinate = nullptr;
  int32_t shards = 1;
  unsigned first = 4;
};

__global__ void shard_rng(ShardRng args, int32_t* sharded) {
  const unsigned i = threadIdx.x;
  if (i == args.first) {
    sharded[i] = *args.coordinate;
  } else if (i == args.first + 1) {
    sharded[i] = args.shards;
  } else {
    sharded[i] = i < args.words ? args.rng[i] : static_cast<int32_t>(i % 2);
  }
}

}  // namespace

void launch_vector_dropout(const Launch& launch) {
  DropArgs args;
  args.x = launch.operands.at(0).data;
  args.rng = launch.operands.at(1).as<int32_t>();
  args.rule = drop_rule(launch.call->double_attr("rate"), launch.call->int_attr("stream"),
                        launch.operands.at(1).elements());
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

void launch_shard_rng(const Launch& launch) {
  const Tensor& sharded = launch.results.at(0);
  const ShardRng args{.rng = launch.operands.at(0).as<int32_t>(),
                      .words = static_cast<unsigned>(launch.operands.at(0).elements()),
                      .coordinate = launch.operands.at(1).as<int32_t>(),
                      .shards = static_cast<int32_t>(launch.call->int_attr("shards")),
                      .first = launch.call->bool_attr("head_tail") ? 6U : 4U};
  shard_rng<<<1, static_cast<unsigned>(sharded.elements()), 0, stream_of(launch)>>>(
      args, sharded.as<int32_t>());
}

}  // namespace weft::cuda
