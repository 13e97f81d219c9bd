// Shared by the tiled attention kernels. A block of four warps owns 64 rows, queries or keys of one
// head, and walks over tiles of the other kind, which are copied in while it processes the tile
// before. Here: the sizes, which keys a thread's queries see, and which pairs dropout keeps.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "runtime/cuda/attention/attention.h"
#include "runtime/cuda/attention/tile_matmul.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/fast_math.h"
#include "runtime/cuda/reduction/philox_batch.h"

namespace weft::cuda {

inline constexpr int kTileThreads = 128;
inline constexpr int kOwnRows = kTileThreads / 32 * kWarpRows;

template <DType kType, int kDim>
struct AttentionTile : Tile<kType, kDim> {
  using typename Tile<kType, kDim>::Element;
  using Tile<kType, kDim>::kPitch;
  // Rows of each tile that a block walks over.
  static constexpr int kWalked = kType != DType::F32 && kDim <= 64 ? 64 : 32;
  static constexpr int kGroups = kWalked / kGroup;

  using Own = Element[kOwnRows * kPitch];
  using Walked = Element[kWalked * kPitch];

  static __device__ void copy_own(Own& to, const Element* from, int64_t pitch, int dim, int first,
                                  int end) {
    Tile<kType, kDim>::template copy<kOwnRows, kTileThreads>(to, from, pitch, dim, first, end);
  }
  static __device__ void copy_walked(Walked& to, const Element* from, int64_t pitch, int dim,
                                     int first, int end) {
    Tile<kType, kDim>::template copy<kWalked, kTileThreads>(to, from, pitch, dim, first, end);
  }
};

// The first of this warp's 16 rows within its block.
__device__ inline int warp_row() {
  return static_cast<int>(threadIdx.x) / 32 * kWarpRows;
}

// The tile that a block owns: number `tile` of a head of a sample. Blocks of one tile are adjacent.
struct OwnTile {
  int tile, head, sample;

  __device__ OwnTile(int heads, int tiles) {
    const int of_one_tile = static_cast<int>(gridDim.x) / tiles;
    tile = static_cast<int>(blockIdx.x) / of_one_tile;
    const int rest = static_cast<int>(blockIdx.x) % of_one_tile;
    head = rest % heads;
    sample = rest / heads;
  }
};

__host__ __device__ inline int own_tiles(int64_t length) {
  return static_cast<int>((length + kOwnRows - 1) / kOwnRows);
}

// The queries of a thread, in rows lane_row(0) and lane_row(1) of its warp, and the keys they see.
struct OwnQueries {
  int warp_first;             // first query of the warp
  int query[2];               // of this thread
  int first_key[2];           // that they see
  int lowest_key, most_keys;  // first visible keys of the first and the last query of the warp

  __device__ OwnQueries(const AttentionShape& shape, int sample, int first_query)
      : warp_first(first_query + warp_row()) {
    const int last = static_cast<int>(shape.length) - 1;
    for (int which = 0; which < 2; ++which) {
      query[which] = warp_first + lane_row(which);
      first_key[which] = static_cast<int>(shape.first_key(sample, min(query[which], last)));
    }
    lowest_key = static_cast<int>(shape.first_key(sample, min(warp_first, last)));
    most_keys = static_cast<int>(shape.first_key(sample, min(warp_first + kWarpRows - 1, last)));
  }

  // Whether any query of the warp sees one of `count` keys, and whether all of them see all.
  __device__ bool see_some(int key, int count) const {
    return key < warp_first + kWarpRows && key + count > lowest_key;
  }
  __device__ bool see_all(int key, int count) const {
    return key + count <= warp_first + 1 && key >= most_keys;
  }

  // Overwrites the values of keys that a query does not see.
  template <int kGroups>
  __device__ void hide(float (&sums)[kGroups][4], int key, float value) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = key + group * kGroup + lane_column() + i % 2;
        if (column > query[i / 2] || column < first_key[i / 2]) sums[group][i] = value;
      }
    }
  }
};

// A block that owns queries, and the keys it walks over: those that any of its queries sees, in
// full tiles. The last queries, which see the most keys, come first.
template <DType kType, int kDim>
struct QueryWalk {
  using T = AttentionTile<kType, kDim>;
  using Element = typename T::Element;
  OwnTile own;
  int length, dim;
  int first_query;
  OwnQueries queries;
  int64_t pitch;
  const Element* q;
  const Element* k;
  const Element* v;
  int key, end;  // first key of the current tile; end of the last tile

  __device__ explicit QueryWalk(const AttentionShape& shape)
      : own(static_cast<int>(shape.heads), own_tiles(shape.length)),
        length(static_cast<int>(shape.length)),
        dim(static_cast<int>(shape.dim)),
        first_query((own_tiles(length) - 1 - own.tile) * kOwnRows),
        queries(shape, own.sample, first_query),
        pitch((shape.heads + 2 * shape.kv_heads) * dim),
        q(static_cast<const Element*>(shape.qkv.data) + shape.q_at(own.sample, own.head, 0)),
        k(static_cast<const Element*>(shape.qkv.data) +
          shape.k_at(own.sample, shape.group(own.head), 0)),
        v(static_cast<const Element*>(shape.qkv.data) +
          shape.v_at(own.sample, shape.group(own.head), 0)),
        key(static_cast<int>(shape.first_key(own.sample, first_query)) / T::kWalked * T::kWalked),
        end(min(first_query + kOwnRows, length)) {}

  // Starts to copy a tile of keys and values.
  template <class Shared>
  __device__ void copy_keys(Shared& shared, int stage, int first) const {
    T::copy_walked(shared.k[stage], k, pitch, dim, first, length);
    T::copy_walked(shared.v[stage], v, pitch, dim, first, length);
  }

  // Calls action(stage) for every tile, with its keys and values in shared memory; a warp skips
  // tiles it does not see.
  template <class Shared, class Action>
  __device__ void run(Shared& shared, Action action) {
    for (int stage = 0; key < end; key += T::kWalked, stage ^= 1) {
      await_copies();
      __syncthreads();
      if (key + T::kWalked < end) copy_keys(shared, stage ^ 1, key + T::kWalked);
      if (queries.see_some(key, T::kWalked)) action(stage);
    }
  }
};

// Which pairs dropout keeps. A thread draws for four adjacent keys of a query at once, so it needs
// one Philox block, or two where rows of pairs do not begin at block boundaries. Threads then
// exchange the results as bits.
struct PairDraws {
  DropStream stream = {};
  uint32_t below = 0;
  int64_t length = 0;
  int64_t first_head = 0;  // head 0 of the sample, among the heads of all samples and shards

  __device__ PairDraws(const AttentionShape& shape, int64_t sample)
      : below(shape.dropout.below), length(shape.length) {
    if (shape.rng == nullptr) return;
    stream = drop_stream(shape.rng, shape.dropout);
    first_head = stream.shard_of(sample) * shape.heads;
  }

  // The element index of query 0 and key 0 of a head.
  __device__ uint64_t head_start(int64_t head) const {
    return (first_head + head) * length * length;
  }

  __device__ uint32_t kept_of(const PhiloxBlock& block) const {
    uint32_t bits = 0;
    for (int word = 0; word < 4; ++word) {
      bits |= static_cast<uint32_t>(block.word[word] >= below) << word;
    }
    return bits;
  }

  // Bit 4 n + w: whether element first + n stride + w is kept, n < kCount. `first` and `stride` are
  // multiples of 4 if the length is.
  template <int kCount>
  __device__ uint32_t kept(uint64_t first, uint64_t stride) const {
    uint32_t bits = 0;
    if (length % 4 == 0) {
#pragma unroll
      for (int n = 0; n < kCount; n += 4) {
        bits |= four_blocks(first / 4 + n * (stride / 4), stride / 4) << (4 * n);
      }
    } else {
#pragma unroll 1
      for (int n = 0; n < kCount; ++n) {
        const uint64_t element = first + n * stride;
        const uint32_t low = kept_of(random_block(stream.key, stream.step, element / 4));
        const uint32_t high = kept_of(random_block(stream.key, stream.step, element / 4 + 1));
        bits |= ((low | high << 4) >> (element % 4) & 15) << (4 * n);
      }
    }
    return bits;
  }

  // The bits of blocks first + n stride, n < 4.
  __device__ uint32_t four_blocks(uint64_t first, uint64_t stride) const {
    PhiloxBlock block[4];
    for (int n = 0; n < 4; ++n) block[n] = random_counter(stream.step, first + n * stride);
    philox_batch(block, stream.key);
    uint32_t bits = 0;
    for (int n = 0; n < 4; ++n) bits |= kept_of(block[n]) << (4 * n);
    return bits;
  }

  // For sums whose rows are queries, from `query` on, and whose columns are keys: bit 4 group + i %
  // 2 of bits[i / 2] is that of sums[group][i]. A thread draws for one of its two queries, and for
  // the half of a group that it shares with its neighbour.
  template <int kGroups>
  __device__ void kept_keys(uint32_t (&bits)[2], uint64_t head, int query, int first_key) const {
    const int lane = threadIdx.x % 32;
    const uint64_t row = query + lane_row(lane % 2);
    const uint32_t drawn =
        kept<kGroups>(head + row * length + first_key + lane % 4 / 2 * 4, kGroup);
    for (int which = 0; which < 2; ++which) {
      bits[which] = __shfl_sync(0xffffffff, drawn, (lane & ~1) | which) >> (lane % 2 * 2);
    }
  }

  // For sums whose rows are keys and whose columns are queries: bit 4 group of bits[i] is that of
  // sums[group][i]. Four threads share the keys of a block; each draws for one of their four pairs
  // of a query and a block.
  template <int kGroups>
  __device__ void kept_queries(uint32_t (&bits)[4], uint64_t head, int first_key, int query) const {
    const int lane = threadIdx.x % 32;
    const int own = lane / 4 % 4;
    const uint64_t row = query + lane_column() + own % 2;
    const int keys = first_key + lane / 16 * 4 + own / 2 * 8;
    const uint32_t drawn = kept<kGroups>(head + row * length + keys, kGroup * length);
    for (int i = 0; i < 4; ++i) {
      bits[i] = __shfl_sync(0xffffffff, drawn, (lane & ~12) | i << 2) >> own;
    }
  }
};

// The value, or 0 where the bit is not set.
__device__ inline float kept_or_zero(uint32_t bits, int bit, float value) {
  return (bits >> bit & 1) != 0 ? value : 0.0f;
}

template <int kValue>
using IntTag = std::integral_constant<int, kValue>;

// Calls action(DTypeTag, IntTag of the columns of a tile, bool_constant of dropout).
template <class Action>
void with_tile(const AttentionShape& shape, Action action) {
  with_dtype(shape.qkv.dtype, [&](auto type) {
    const auto with_dim = [&](auto drop) {
      if (shape.dim <= 32) return action(type, IntTag<32>(), drop);
      if (shape.dim <= 64) return action(type, IntTag<64>(), drop);
      return action(type, IntTag<128>(), drop);
    };
    shape.rng != nullptr ? with_dim(std::true_type()) : with_dim(std::false_type());
  });
}

// Launches with dynamic shared memory of type `Shared`.
template <class Shared, class... Parameters, class... Args>
void launch_tiles(void (*kernel)(Parameters...), int64_t blocks, cudaStream_t stream,
                  const Args&... args) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(sizeof(Shared))));
  kernel<<<blocks_for(blocks, 1), kTileThreads, sizeof(Shared), stream>>>(args...);
}

}  // namespace weft::cuda
