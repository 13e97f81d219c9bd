// attention backward on Hopper's matrix units, bit-identical on every run. With p = exp(scale q k^T
// - lse), delta = dy . y and ds = p (dy v^T - delta): dv = p^T dy, dk = scale ds^T q, dq = scale ds
// k. A block owns 128 keys of one key-value head and walks the query tiles that see them, head by
// head, so dk and dv stay in registers. A tile of dq is summed over blocks, which take turns in a
// fixed order. Two warpgroups multiply, 64 keys each; one warp copies tiles in, two add to dq. s
// and dp are transposed, so that p and ds are usable as left operands in place.
#include "runtime/cuda/device/hopper.h"

#include <cuda_runtime.h>

#include <cmath>

#include "runtime/cuda/device/check.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

using namespace hopper;

constexpr int kKeyRows = 128;  // of k and v, owned by a block
constexpr int kConsumers = 2;  // warpgroups that multiply, 64 keys each
constexpr int kGroupThreads = 128;
constexpr int kBlockThreads = (kConsumers + 1) * kGroupThreads;
constexpr int kStages = 2;
constexpr int kBoxRows = 64;
constexpr int kBandTiles = 16;
constexpr int kPartElements = 64 * 64;  // of a tile of dq: the share of one warpgroup

// Named barriers for some warps of a block; those of dq come in pairs, one per warpgroup.
constexpr int kDsFull = 1;
constexpr int kDqFull = 2;
constexpr int kDqEmpty = 4;
constexpr int kHandOverThreads = kGroupThreads + 32;
constexpr float kLog2e = 1.4426950408889634f;

struct GradShape {
  int batch = 0, length = 0, heads = 0, kv_heads = 0;
  int padded = 0;  // length rounded up to a multiple of kKeyRows
  float scale = 0;

  __host__ __device__ int group() const { return heads / kv_heads; }
  __host__ __device__ int width(int dim) const { return (heads + 2 * kv_heads) * dim; }
};

struct GradArgs {
  GradShape shape;
  const float* lse2 = nullptr;   // [batch, heads, padded], base 2, infinite past the end
  const float* delta = nullptr;  // [batch, heads, padded], 0 past the end
  float* dq = nullptr;           // sums of tiles of dq, in register order
  uint32_t* turn = nullptr;      // per warpgroup part of such a tile: key tiles added so far
  void* dqkv = nullptr;
};

template <int kDim>
struct Tiles {
  static constexpr int kQueries = kDim == 64 ? 128 : 64;
  static constexpr bool kSplitQueries = kQueries == 128;  // between warpgroups in dq; else columns
  static constexpr int kPanels = kDim / kPanelColumns;
  static constexpr int kKeyPanel = kKeyRows * kRowBytes;
  static constexpr int kQueryPanel = kQueries * kRowBytes;
  static constexpr int kQueryPanels = kQueries / kPanelColumns;  // of ds, whose columns are queries

  struct alignas(1024) Shared {
    char k[kPanels * kKeyPanel];
    char v[kPanels * kKeyPanel];
    char q[kStages][kPanels * kQueryPanel];
    char dy[kStages][kPanels * kQueryPanel];
    char ds[2][kQueryPanels * kKeyPanel];
    float dq[kConsumers][kPartElements];  // in register order
    alignas(128) float lse2[kStages][kQueries];
    alignas(128) float delta[kStages][kQueries];
    uint64_t keys_full;
    uint64_t full[kStages];
    uint64_t empty[kStages];
  };
  static constexpr int kStageBytes = 2 * kPanels * kQueryPanel + 2 * kQueries * 4;
};

// Which keys a block owns, and how many tiles of queries see them. The last keys come first and
// every block walks up from its own position, so a block reaches each tile of dq one step after the
// block whose turn precedes its own. Blocks are ordered in bands of several key tiles of every
// key-value head: blocks that run concurrently add to the same tiles while these are in the cache.
struct BlockPlace {
  int tile, sample, kv_head;
  int queries, steps;  // queries per tile; number of tiles

  __device__ BlockPlace(const GradShape& shape, int tile_queries) : queries(tile_queries) {
    const int tiles = shape.padded / kKeyRows;
    const int band_blocks = kBandTiles * shape.batch * shape.kv_heads;
    const int band = blockIdx.x / band_blocks;
    const int in_band = blockIdx.x % band_blocks;
    const int band_tiles = min(kBandTiles, tiles - band * kBandTiles);
    tile = tiles - 1 - (band * kBandTiles + in_band % band_tiles);
    kv_head = in_band / band_tiles % shape.kv_heads;
    sample = in_band / band_tiles / shape.kv_heads;
    steps = (shape.length - 1 - tile * kKeyRows) / queries + 1;
  }

  // Calls action(item, head, row) for every tile of queries: `row` is its first query, `item`
  // counts tiles.
  template <class Action>
  __device__ void walk(const GradShape& shape, Action action) const {
    int item = 0;
    for (int head = kv_head * shape.group(); head < (kv_head + 1) * shape.group(); ++head) {
      for (int step = 0; step < steps; ++step, ++item) {
        action(item, head, tile * kKeyRows + step * queries);
      }
    }
  }
};

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline uint32_t load_turn(const uint32_t* turn) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(turn) : "memory");
  return value;
}

__device__ inline void store_turn(uint32_t* turn, uint32_t value) {
  asm volatile("fence.acq_rel.gpu;\nst.release.gpu.global.u32 [%0], %1;" ::"l"(turn), "r"(value)
               : "memory");
}

// Copies rows of one head into the panels of a tile.
template <int kDim>
__device__ void copy_tile(char* to, const CUtensorMap& map, int rows, int column, int row,
                          int sample, uint64_t* barrier) {
  for (int panel = 0; panel < kDim / kPanelColumns; ++panel) {
    for (int part = 0; part < rows; part += kBoxRows) {
      copy_box(to + (panel * rows + part) * kRowBytes, map, column + panel * kPanelColumns,
               row + part, sample, barrier);
    }
  }
}

// The work of the copying thread: the keys and values of the block, then each tile of q and dy.
template <int kDim>
__device__ void produce(typename Tiles<kDim>::Shared& shared, const CUtensorMap& qkv,
                        const CUtensorMap& dy, const GradArgs& args) {
  using T = Tiles<kDim>;
  const GradShape& shape = args.shape;
  const BlockPlace place(shape, T::kQueries);
  const int keys = (shape.heads + place.kv_head) * kDim;
  arrive_expecting(&shared.keys_full, 2 * T::kPanels * T::kKeyPanel);
  copy_tile<kDim>(shared.k, qkv, kKeyRows, keys, place.tile * kKeyRows, place.sample,
                  &shared.keys_full);
  copy_tile<kDim>(shared.v, qkv, kKeyRows, keys + shape.kv_heads * kDim, place.tile * kKeyRows,
                  place.sample, &shared.keys_full);
  place.walk(shape, [&](int item, int head, int row) {
    const int64_t stats = (static_cast<int64_t>(place.sample) * shape.heads + head) * shape.padded;
    const int stage = item % kStages;
    await(&shared.empty[stage], (item / kStages + 1) % 2);
    uint64_t* full = &shared.full[stage];
    arrive_expecting(full, T::kStageBytes);
    copy_tile<kDim>(shared.q[stage], qkv, T::kQueries, head * kDim, row, place.sample, full);
    copy_tile<kDim>(shared.dy[stage], dy, T::kQueries, head * kDim, row, place.sample, full);
    copy_bytes(shared.lse2[stage], args.lse2 + stats + row, T::kQueries * 4, full);
    copy_bytes(shared.delta[stage], args.delta + stats + row, T::kQueries * 4, full);
  });
}

// Adds one warpgroup's 64 x 64 parts of dq to the sums in memory, each in its turn, so that the
// sums have the same bits on every run.
template <int kDim>
__device__ void add_to_dq(typename Tiles<kDim>::Shared& shared, const GradArgs& args,
                          int consumer) {
  using T = Tiles<kDim>;
  const GradShape& shape = args.shape;
  const BlockPlace place(shape, T::kQueries);
  const bool leader = threadIdx.x % 32 == 0;
  arrive_at<kHandOverThreads>(kDqEmpty + consumer);
  place.walk(shape, [&](int, int head, int row) {
    const int64_t tile =
        ((static_cast<int64_t>(place.sample) * shape.heads + head) * shape.padded + row) /
        T::kQueries;
    uint32_t* turn = args.turn + tile * kConsumers + consumer;
    float* sums = args.dq + (tile * kConsumers + consumer) * kPartElements;
    const uint32_t own_turn = (row + T::kQueries - 1) / kKeyRows - place.tile;
    sync_barrier<kHandOverThreads>(kDqFull + consumer);
    if (leader) {
      if (own_turn == 0) {
        write_bytes(sums, shared.dq[consumer], kPartElements * 4);
      } else {
        while (load_turn(turn) != own_turn) {
        }
        add_floats(sums, shared.dq[consumer], kPartElements * 4);
      }
      await_reads();
    }
    __syncwarp();
    arrive_at<kHandOverThreads>(kDqEmpty + consumer);
    if (leader) {
      await_writes();
      store_turn(turn, own_turn + 1);
    }
  });
}

// Rounds a thread's share of 64 rows of results and writes it to dqkv: 16 rows per warp starting at
// `row`, two adjacent columns of every eight.
template <class Half, int kCount>
__device__ void write_rows(const GradArgs& args, int dim, int sample, int row, int column,
                           const float (&sum)[kCount], float factor) {
  const GradShape& shape = args.shape;
  const int lane = threadIdx.x % 32;
  const int width = shape.width(dim);
  row += lane / 4;
  uint32_t* to = static_cast<uint32_t*>(args.dqkv) +
                 ((static_cast<int64_t>(sample) * shape.length + row) * width + column) / 2 +
                 lane % 4;
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const float* x = sum + 4 * i;
    if (row < shape.length) to[4 * i] = pack(Half(), x[0] * factor, x[1] * factor);
    if (row + 8 < shape.length) to[4 * i + 4 * width] = pack(Half(), x[2] * factor, x[3] * factor);
  }
}

// A warpgroup's 64 keys: their scores and weights for each tile of queries, and the gradients of k
// and v.
template <class Half, int kDim>
class KeyGradient {
 public:
  using T = Tiles<kDim>;
  static constexpr int kSums = T::kQueries / 2;  // a thread's share of 64 keys x kQueries

  __device__ KeyGradient(typename T::Shared& shared, const GradArgs& args)
      : shared_(shared),
        args_(args),
        place_(args.shape, T::kQueries),
        consumer_(threadIdx.x / kGroupThreads - 1),
        thread_(threadIdx.x % kGroupThreads),
        lane_(threadIdx.x % 32),
        key_row_(consumer_ * 64 + thread_ / 32 * 16) {}

  __device__ void walk() {
    await(&shared_.keys_full, 0);
    place_.walk(args_.shape, [&](int item, int, int row) {
      const int stage = item % kStages;
      await(&shared_.full[stage], item / kStages % 2);
      float s[kSums];
      float dp[kSums];
      multiply_rows(s, shared_.k, shared_.q[stage]);
      multiply_rows(dp, shared_.v, shared_.dy[stage]);
      await_matmuls<0>();
      pin(s);
      pin(dp);
      uint32_t p[kSums / 2];
      uint32_t ds[kSums / 2];
      if (row < (place_.tile + 1) * kKeyRows) {
        weigh<true>(row, stage, s, dp, p, ds);
      } else {
        weigh<false>(row, stage, s, dp, p, ds);
      }
      add_matmul(dv_, p, shared_.dy[stage]);
      char* buffer = shared_.ds[item % 2];
      publish(ds, buffer);
      add_matmul(dk_, ds, shared_.q[stage]);
      sync_barrier<kConsumers * kGroupThreads>(kDsFull);
      float dq[kPartElements / kGroupThreads];
      multiply_queries(dq, buffer);
      await_matmuls<1>();
      pin(dv_);
      pin(dk_);
      arrive(&shared_.empty[stage]);
      await_matmuls<0>();
      pin(dq);
      hand_over(dq);
    });
  }

  __device__ void write() const {
    const GradShape& shape = args_.shape;
    const int column = (shape.heads + place_.kv_head) * kDim;
    const int row = place_.tile * kKeyRows + key_row_;
    write_rows<Half>(args_, kDim, place_.sample, row, column, dk_, shape.scale);
    write_rows<Half>(args_, kDim, place_.sample, row, column + shape.kv_heads * kDim, dv_, 1.0f);
  }

 private:
  // Starts s^T = k q^T or dp^T = v dy^T.
  __device__ void multiply_rows(float (&sum)[kSums], const char* keys, const char* queries) const {
    const char* own = keys + consumer_ * 64 * kRowBytes;
    start_matmuls();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const int panel = step / 4;
      multiply<0>(Half(), sum, rows_operand(own + panel * T::kKeyPanel) + step % 4 * kNextInRow,
                  rows_operand(queries + panel * T::kQueryPanel) + step % 4 * kNextInRow, step > 0);
    }
    commit_matmuls();
  }

  // p and ds from s and dp; a key after the query gets weight 0.
  template <bool kMasked>
  __device__ void weigh(int row, int stage, const float (&s)[kSums], const float (&dp)[kSums],
                        uint32_t (&p)[kSums / 2], uint32_t (&ds)[kSums / 2]) const {
    const float scale2 = args_.shape.scale * kLog2e;
    const int key = place_.tile * kKeyRows + key_row_ + lane_ / 4;
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
      const int column = 8 * i + lane_ % 4 * 2;
      const float2 lse2 = *reinterpret_cast<const float2*>(&shared_.lse2[stage][column]);
      const float2 delta = *reinterpret_cast<const float2*>(&shared_.delta[stage][column]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {  // this row of keys and the one 8 below
        const int at = 4 * i + 2 * j;
        float low = exp2_fast(__fmaf_rn(s[at], scale2, -lse2.x));
        float high = exp2_fast(__fmaf_rn(s[at + 1], scale2, -lse2.y));
        if (kMasked && key + 8 * j > row + column) low = 0;
        if (kMasked && key + 8 * j > row + column + 1) high = 0;
        p[at / 2] = pack(Half(), low, high);
        ds[at / 2] = pack(Half(), low * (dp[at] - delta.x), high * (dp[at + 1] - delta.y));
      }
    }
  }

  // Starts dv += p^T dy or dk += ds^T q.
  __device__ void add_matmul(float (&sum)[kDim / 2], const uint32_t (&weights)[kSums / 2],
                             const char* queries) const {
    start_matmuls();
#pragma unroll
    for (int step = 0; step < T::kQueries / 16; ++step) {
      multiply(Half(), sum, weights + 4 * step,
               columns_operand(queries, T::kQueryPanel) + step * kNextRows);
    }
    commit_matmuls();
  }

  // Stores this warpgroup's ds where both can multiply it: rows are keys, columns queries.
  __device__ void publish(const uint32_t (&ds)[kSums / 2], char* buffer) const {
#pragma unroll
    for (int step = 0; step < T::kQueries / 16; ++step) {
      const int row = key_row_ + lane_ / 8 % 2 * 8 + lane_ % 8;
      const int chunk = step % 4 * 2 + lane_ / 16;
      const uint32_t panel = shared_address(buffer) + step / 4 * T::kKeyPanel;
      store_blocks(panel + chunk_offset(row, chunk), ds + 4 * step);
    }
    publish_stores();
  }

  // Passes this warpgroup's part of dq to the warp that accumulates it.
  __device__ void hand_over(const float (&dq)[kPartElements / kGroupThreads]) const {
    sync_barrier<kHandOverThreads>(kDqEmpty + consumer_);
    auto* to = reinterpret_cast<float4*>(shared_.dq[consumer_]) + thread_;
#pragma unroll
    for (int i = 0; i < kPartElements / kGroupThreads / 4; ++i) {
      to[i * kGroupThreads] = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    }
    publish_stores();
    arrive_at<kHandOverThreads>(kDqFull + consumer_);
  }

  // Starts this warpgroup's part of dq = ds k over all keys of the block.
  __device__ void multiply_queries(float (&sum)[32], const char* buffer) const {
    const char* left = buffer + (T::kSplitQueries ? consumer_ * T::kKeyPanel : 0);
    const char* right = shared_.k + (T::kSplitQueries ? 0 : consumer_ * T::kKeyPanel);
    start_matmuls();
#pragma unroll
    for (int step = 0; step < kKeyRows / 16; ++step) {
      multiply<1>(Half(), sum, columns_operand(left) + step * kNextRows,
                  columns_operand(right) + step * kNextRows, step > 0);
    }
    commit_matmuls();
  }

  typename T::Shared& shared_;
  const GradArgs& args_;
  const BlockPlace place_;
  const int consumer_, thread_, lane_;
  const int key_row_;  // of this warp's 16 rows, in the block's tile
  float dk_[kDim / 2] = {};
  float dv_[kDim / 2] = {};
};

template <class Half, int kDim>
__global__ void __launch_bounds__(kBlockThreads, 1)
    attention_grad_tiles(const __grid_constant__ CUtensorMap qkv,
                         const __grid_constant__ CUtensorMap dy, const GradArgs args) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Tiles<kDim>::Shared*>(memory);
  if (threadIdx.x == 0) {
    init_barrier(&shared.keys_full, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(&shared.full[stage], 1);
      init_barrier(&shared.empty[stage], kConsumers * kGroupThreads);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    give_registers<40>();
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) produce<kDim>(shared, qkv, dy, args);
    if (warp >= 1 && warp <= kConsumers) add_to_dq<kDim>(shared, args, warp - 1);
  } else {
    take_registers<232>();
    KeyGradient<Half, kDim> keys(shared, args);
    keys.walk();
    keys.write();
  }
}

// lse in base 2 and delta = dy . y of every query; several threads per head and position.
template <class Half, int kDim>
__global__ void attention_grad_stats(GradShape shape, const Half* dy, const Half* y,
                                     const float* lse, float* lse2, float* delta) {
  constexpr int kThreadsPerRow = kDim / 8;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t entry = index / kThreadsPerRow;  // [batch, padded, heads]
  const int part = index % kThreadsPerRow;
  if (entry >= static_cast<int64_t>(shape.batch) * shape.padded * shape.heads) return;
  const int64_t position = entry / shape.heads % shape.padded;
  const int64_t sample = entry / shape.heads / shape.padded;
  const int64_t head = entry % shape.heads;
  const int64_t to = (sample * shape.heads + head) * shape.padded + position;
  const bool inside = position < shape.length;
  float sum = 0;
  if (inside) {
    const int64_t at = ((sample * shape.length + position) * shape.heads + head) * kDim + part * 8;
    const uint4 a = *reinterpret_cast<const uint4*>(dy + at);
    const uint4 b = *reinterpret_cast<const uint4*>(y + at);
    const Half* x = reinterpret_cast<const Half*>(&a);
    const Half* z = reinterpret_cast<const Half*>(&b);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += static_cast<float>(x[i]) * static_cast<float>(z[i]);
  }
#pragma unroll
  for (int step = kThreadsPerRow / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, step);
  }
  if (part == 0) {
    const int64_t from = (sample * shape.heads + head) * shape.length + position;
    lse2[to] = inside ? lse[from] * kLog2e : INFINITY;
    delta[to] = sum;
  }
}

// Rounds the sums of dq and writes them to dqkv.
template <class Half, int kDim>
__global__ void attention_grad_round(GradArgs args) {
  using T = Tiles<kDim>;
  const GradShape& shape = args.shape;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int thread = index % kGroupThreads;
  const int chunk = index / kGroupThreads % 8;
  const int64_t part = index / kGroupThreads / 8;
  const int consumer = part % kConsumers;
  const int64_t row_of_all = part / kConsumers * T::kQueries;  // [batch, heads, padded]
  const int64_t head = row_of_all / shape.padded % shape.heads;
  const int64_t sample = row_of_all / shape.padded / shape.heads;
  if (sample >= shape.batch) return;
  const int row = row_of_all % shape.padded + (T::kSplitQueries ? consumer * 64 : 0) +
                  thread / 32 * 16 + thread % 32 / 4;
  const int column = (T::kSplitQueries ? 0 : consumer * 64) + chunk * 8 + thread % 4 * 2;
  const float4 x = reinterpret_cast<const float4*>(args.dq)[index];
  const int width = shape.width(kDim);
  uint32_t* to = static_cast<uint32_t*>(args.dqkv) +
                 ((sample * shape.length + row) * width + head * kDim + column) / 2;
  if (row < shape.length) *to = pack(Half(), x.x * shape.scale, x.y * shape.scale);
  if (row + 8 < shape.length) to[4 * width] = pack(Half(), x.z * shape.scale, x.w * shape.scale);
}

// A view of [batch, length, width] for copies of 64 rows x 64 columns; rows past the end are zero.
CUtensorMap tensor_map(const void* data, DType dtype, const GradShape& shape, int width) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status{};
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                cudaEnableDefault, &status));
    CHECK(found != nullptr, "the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(shape.length),
                              static_cast<cuuint64_t>(shape.batch)};
  const cuuint64_t strides[] = {sizes[0] * 2, sizes[0] * sizes[1] * 2};
  const cuuint32_t box[] = {kPanelColumns, kBoxRows, 1};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map,
      dtype == DType::BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
      const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed with ", static_cast<int>(result));
  return map;
}

template <class Half, int kDim>
void run(const Launch& launch, GradShape shape) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& qkv = launch.operands.at(1);
  const cudaStream_t stream = stream_of(launch);
  const int64_t rows = static_cast<int64_t>(shape.batch) * shape.heads * shape.padded;
  auto* lse2 = static_cast<float*>(launch.workspace);
  float* delta = lse2 + rows;
  GradArgs args;
  args.shape = shape;
  args.lse2 = lse2;
  args.delta = delta;
  args.dq = delta + rows;
  args.turn = reinterpret_cast<uint32_t*>(args.dq + rows * kDim);
  args.dqkv = launch.results.at(0).data;
  const int64_t turns = rows / Tiles<kDim>::kQueries * kConsumers;
  CUDA_CHECK(cudaMemsetAsync(args.turn, 0, turns * sizeof(uint32_t), stream));

  constexpr int kRowThreads = 256;
  attention_grad_stats<Half, kDim>
      <<<blocks_for(rows * (kDim / 8), kRowThreads), kRowThreads, 0, stream>>>(
          shape, dy.as<Half>(), launch.operands.at(2).as<Half>(), launch.operands.at(3).as<float>(),
          lse2, delta);

  constexpr int kSharedBytes = sizeof(typename Tiles<kDim>::Shared);
  const auto kernel = attention_grad_tiles<Half, kDim>;
  CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const int blocks = shape.padded / kKeyRows * shape.batch * shape.kv_heads;
  kernel<<<blocks, kBlockThreads, kSharedBytes, stream>>>(
      tensor_map(qkv.data, qkv.dtype, shape, shape.width(kDim)),
      tensor_map(dy.data, dy.dtype, shape, shape.heads * kDim), args);

  attention_grad_round<Half, kDim>
      <<<blocks_for(rows * (kDim / 4), kRowThreads), kRowThreads, 0, stream>>>(args);
}

}  // namespace

void launch_hopper_attention_grad(const Launch& launch) {
  const Call& call = *launch.call;
  const Tensor& qkv = launch.operands.at(1);
  GradShape shape;
  shape.batch = static_cast<int>(qkv.shape.at(0));
  shape.length = static_cast<int>(qkv.shape.at(1));
  shape.heads = static_cast<int>(call.int_attr("heads"));
  shape.kv_heads = static_cast<int>(call.int_attr("kv_heads"));
  shape.padded = (shape.length + kKeyRows - 1) / kKeyRows * kKeyRows;
  const int64_t dim = qkv.shape.at(2) / (shape.heads + 2 * shape.kv_heads);
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  if (qkv.dtype == DType::BF16) {
    dim == 64 ? run<__nv_bfloat16, 64>(launch, shape) : run<__nv_bfloat16, 128>(launch, shape);
  } else {
    dim == 64 ? run<__half, 64>(launch, shape) : run<__half, 128>(launch, shape);
  }
}

}  // namespace weft::cuda
