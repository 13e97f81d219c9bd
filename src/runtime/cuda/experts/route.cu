// Where the rows of every token lie among those of its experts: a stable counting sort. A warp
// counts the choices of a chunk, a block per source turns the counts into places where each chunk
// continues, and the warps place the choices in order.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/experts/lanes.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kAtOnce = 16;  // counts in flight

struct Route {
  const int32_t* index = nullptr;
  int64_t choices = 0, chunks = 0;  // per source
  int64_t slots = 0;
  int sources = 0, parts = 0, experts = 0;
  int32_t* counts =
      nullptr;  // [sources, chunks, experts]: choices of the chunk, then of those before
  int32_t* starts = nullptr;  // [sources, experts]: first row of the expert in its part

  __device__ int per_part() const { return experts / parts; }
};

// The chunk of this warp.
struct Chunk {
  int64_t number, source, first, end;

  __device__ explicit Chunk(const Route& route)
      : number(static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y),
        source(number / route.chunks),
        first(source * route.choices + number % route.chunks * kRouteChunk),
        end(min(first + kRouteChunk, (source + 1) * route.choices)) {}

  __device__ bool exists(const Route& route) const { return source < route.sources; }
};

__global__ void count_choices(Route route) {
  extern __shared__ int32_t shared[];
  const Chunk chunk(route);
  if (!chunk.exists(route)) return;
  int32_t* own = shared + threadIdx.y * route.experts;
  for (int e = threadIdx.x; e < route.experts; e += kWarp) own[e] = 0;
  __syncwarp();
  for (int64_t i = chunk.first + threadIdx.x; i < chunk.end; i += kWarp) {
    atomicAdd(own + route.index[i], 1);
  }
  __syncwarp();
  int32_t* counts = route.counts + chunk.number * route.experts;
  for (int e = threadIdx.x; e < route.experts; e += kWarp) counts[e] = own[e];
}

// One thread per expert.
__global__ void find_places(Route route, int32_t* offsets) {
  __shared__ int32_t ends[kMaxRouteExperts];  // inclusive sums over the experts of all parts
  const int expert = threadIdx.x, source = blockIdx.x;
  const bool exists = expert < route.experts;
  int32_t total = 0;
  if (exists) {
    int32_t* counts = route.counts + source * route.chunks * route.experts + expert;
    for (int64_t first = 0; first < route.chunks; first += kAtOnce) {
      int32_t count[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        count[i] = first + i < route.chunks ? counts[(first + i) * route.experts] : 0;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < route.chunks) counts[(first + i) * route.experts] = total;
        total += count[i];
      }
    }
  }
  ends[expert] = total;
  __syncthreads();
  for (int step = 1; step < route.experts; step *= 2) {
    const int32_t before = expert >= step ? ends[expert - step] : 0;
    __syncthreads();
    ends[expert] += before;
    __syncthreads();
  }
  if (exists) {
    const int part = expert / route.per_part(), first = part * route.per_part();
    const int32_t skipped = first > 0 ? ends[first - 1] : 0;
    const int32_t end = ends[expert] - skipped;
    route.starts[source * route.experts + expert] = end - total;
    int32_t* own = offsets + (source * route.parts + part) * (route.per_part() + 1);
    if (expert == first) own[0] = 0;
    own[expert - first + 1] = static_cast<int32_t>(min(static_cast<int64_t>(end), route.slots));
  }
}

__global__ void place_choices(Route route, int32_t* at) {
  extern __shared__ int32_t shared[];
  const Chunk chunk(route);
  if (!chunk.exists(route)) return;
  int32_t* next = shared + threadIdx.y * route.experts;
  const int32_t* before = route.counts + chunk.number * route.experts;
  const int32_t* starts = route.starts + chunk.source * route.experts;
  for (int e = threadIdx.x; e < route.experts; e += kWarp) next[e] = starts[e] + before[e];
  __syncwarp();
  for (int64_t first = chunk.first; first < chunk.end; first += kWarp) {
    const int64_t i = first + threadIdx.x;
    const int expert = i < chunk.end ? route.index[i] : -1;
    const unsigned same = __match_any_sync(0xffffffff, expert);
    const unsigned earlier = same & ((1u << threadIdx.x) - 1);
    int64_t row = 0;
    if (expert >= 0) row = next[expert] + __popc(earlier);
    __syncwarp();
    if (expert >= 0) {
      if (earlier == 0) next[expert] += __popc(same);
      const int64_t first_of_part = expert / route.per_part() * route.slots;
      at[i] = row < route.slots ? static_cast<int32_t>(first_of_part + row) : -1;
    }
    __syncwarp();
  }
}

}  // namespace

void launch_route(const Launch& launch) {
  const Call& call = *launch.call;
  Route route;
  route.index = launch.operands.at(0).as<const int32_t>();
  route.sources = static_cast<int>(call.int_attr("sources"));
  route.parts = static_cast<int>(call.int_attr("parts"));
  route.experts = static_cast<int>(call.int_attr("experts"));
  route.slots = call.int_attr("slots");
  route.choices = launch.operands[0].elements() / route.sources;
  route.chunks = route_chunks(call);
  route.counts = static_cast<int32_t*>(launch.workspace);
  route.starts = route.counts + route.sources * route.chunks * route.experts;
  const cudaStream_t stream = stream_of(launch);
  const unsigned blocks = blocks_for(route.sources * route.chunks, kWarps);
  const size_t shared = kWarps * route.experts * sizeof(int32_t);
  const unsigned threads = (route.experts + kWarp - 1) / kWarp * kWarp;
  count_choices<<<blocks, dim3(kWarp, kWarps), shared, stream>>>(route);
  CUDA_CHECK(cudaGetLastError());
  find_places<<<route.sources, threads, 0, stream>>>(route, launch.results.at(0).as<int32_t>());
  CUDA_CHECK(cudaGetLastError());
  place_choices<<<blocks, dim3(kWarp, kWarps), shared, stream>>>(
      route, launch.results.at(1).as<int32_t>());
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace weft::cuda
