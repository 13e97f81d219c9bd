// dropout, and the random state of a shard. Drawing takes about as long as reading and writing, so
// a thread of the vector kernel keeps the loads of several vectors in flight while it draws.
#include <algorithm>

#include "runtime/cuda/launches.h"
#include "runtime/cuda/random.h"
#include "runtime/cuda/reduction/philox_batch.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

struct DropArgs {
  const void* x = nullptr;
  void* result = nullptr;
  const int32_t* rng = nullptr;
  DropRule rule;
  int64_t elements = 0;
  int64_t per_sample = 0;
};

__global__ void drop(DropArgs args, DType dtype) {
  const int64_t i = global_thread();
  if (i >= args.elements) return;
  const uint32_t word = drop_stream(args.rng, args.rule).word(i, args.per_sample);
  const float x = Elements{const_cast<void*>(args.x), dtype}.get(i);
  Elements{args.result, dtype}.put(i, args.rule.apply(x, word));
}

template <DType kType, bool kSharded>
struct DropVectors {
  static constexpr int kVectors = kType == DType::F32 ? 2 : 4;  // per thread
  using V = Vector<kType>;

  static __device__ void run(const DropArgs& args) {
    const int64_t stride = static_cast<int64_t>(blockDim.x) * kLanes;
    const int64_t first = blockIdx.x * kVectors * stride + threadIdx.x * kLanes;
    typename V::Raw x[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = first + v * stride;
      if (i >= args.elements) break;
      x[v] = V::fetch(args.x, i);
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
      finish(args, i, x[v], words);
      finish(args, i + stride, x[v + 1], words + 2);
    }
  }

  static __device__ void finish(const DropArgs& args, int64_t i, const typename V::Raw& x,
                                const PhiloxBlock* words) {
    if (i >= args.elements) return;
    float value[kLanes];
    V::unpack(x, value);
    for (int e = 0; e < kLanes; ++e) {
      value[e] = args.rule.apply(value[e], words[e / 4].word[e % 4]);
    }
    V::store(args.result, i, value);
  }
};

template <DType kType, bool kSharded>
__global__ void drop_vectors(DropArgs args) {
  DropVectors<kType, kSharded>::run(args);
}

template <bool kSharded>
void launch_vectors(const DropArgs& args, DType dtype, cudaStream_t stream) {
  with_dtype(dtype, [&](auto type) {
    constexpr DType kType = decltype(type)::kValue;
    constexpr int64_t kShare = DropVectors<kType, kSharded>::kVectors * kLanes;
    const unsigned blocks = blocks_for((args.elements + kShare - 1) / kShare, kThreads);
    drop_vectors<kType, kSharded><<<blocks, kThreads, 0, stream>>>(args);
  });
}

DropArgs args_of(const Launch& launch) {
  const Tensor& rng = launch.operands.at(1);
  const Tensor& result = launch.results.at(0);
  DropArgs args;
  args.x = launch.operands.at(0).data;
  args.result = result.data;
  args.rng = rng.as<int32_t>();
  args.rule =
      drop_rule(launch.call->double_attr("rate"), launch.call->int_attr("stream"), rng.elements());
  args.elements = result.elements();
  args.per_sample = args.elements / std::max<int64_t>(1, result.shape.at(0));
  return args;
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

void launch_dropout(const Launch& launch) {
  const DropArgs args = args_of(launch);
  drop<<<blocks_for(args.elements, kThreads), kThreads, 0, stream_of(launch)>>>(
      args, launch.results[0].dtype);
}

void launch_vector_dropout(const Launch& launch) {
  const DropArgs args = args_of(launch);
  const auto run = args.rule.sharded ? launch_vectors<true> : launch_vectors<false>;
  run(args, launch.results[0].dtype, stream_of(launch));
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
