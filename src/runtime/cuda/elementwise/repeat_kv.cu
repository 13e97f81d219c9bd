// repeat_kv and its gradient, one thread per element of the result. Which shard it is, is a value
// on the device.
#include "plan/repeated_heads.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

struct Heads {
  RepeatedHeads all;
  const int32_t* coordinate = nullptr;  // nullptr: one shard
  int64_t each = 0;                     // elements of a head
  int64_t elements = 0;                 // of the result

  __device__ RepeatedHeads shard() const {
    RepeatedHeads heads = all;
    if (coordinate != nullptr) heads.index = *coordinate;
    return heads;
  }
};

Heads heads_of(const Launch& launch, const Tensor& repeated) {
  const RepeatedHeads all = repeated_heads(*launch.call, 0);
  const bool located = launch.operands.size() > 1;
  return {.all = all,
          .coordinate = located ? launch.operands[1].as<const int32_t>() : nullptr,
          .each = repeated.elements() / all.size(),
          .elements = launch.results.at(0).elements()};
}

__global__ void repeat_kv(Heads heads, Elements w, Elements y) {
  const int64_t i = global_thread();
  if (i >= heads.elements) return;
  const RepeatedHeads shard = heads.shard();
  y.put(i, w.get(shard.source(i / heads.each) * heads.each + i % heads.each));
}

__global__ void repeat_kv_grad(Heads heads, Elements dy, Elements dw) {
  const int64_t i = global_thread();
  if (i >= heads.elements) return;
  const RepeatedHeads::Range copies = heads.shard().copies_of(i / heads.each);
  float sum = 0;
  for (int64_t at = copies.begin; at < copies.end; ++at) {
    sum += dy.get(at * heads.each + i % heads.each);
  }
  dw.put(i, sum);
}

}  // namespace

void launch_repeat_kv(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  repeat_kv<<<blocks_for(y.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      heads_of(launch, y), elements(launch.operands.at(0)), elements(y));
  CUDA_CHECK(cudaGetLastError());
}

void launch_repeat_kv_grad(const Launch& launch) {
  const Tensor& dw = launch.results.at(0);
  repeat_kv_grad<<<blocks_for(dw.elements(), kThreads), kThreads, 0, stream_of(launch)>>>(
      heads_of(launch, launch.operands.at(0)), elements(launch.operands[0]), elements(dw));
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace weft::cuda
