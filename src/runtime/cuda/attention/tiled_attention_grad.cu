// attention backward by tiles on matrix units, deterministic in two passes. With c the dropout
// factor, p = exp(scale q k^T - lse), delta = dy . y and ds = p (c dy v^T - delta): a block of the
// first pass owns 64 queries, computes their delta and walks over the keys for dq = scale ds k. A
// block of the second owns 64 keys and walks over the queries of each head of its group for dv = (c
// p)^T dy and dk = scale ds^T q; its matmuls are transposed, so c p and ds are left operands in
// place. Half types round both before they multiply.
#include "runtime/cuda/attention/tiled_attention.h"

namespace weft::cuda {

namespace {

template <DType kType, int kDim>
struct alignas(16) QueryTiles {
  using T = AttentionTile<kType, kDim>;
  typename T::Own q, dy;
  typename T::Walked k[2], v[2];
  float delta[kOwnRows];
};

template <DType kType, int kDim>
struct alignas(16) KeyTiles {
  using T = AttentionTile<kType, kDim>;
  typename T::Own k, v;
  typename T::Walked q[2], dy[2];
  float2 stats[2][T::kWalked];  // per query: lse in base 2, delta
  int first_key[2][T::kWalked];
};

// Blocks per SM that the registers allow.
template <DType kType, int kDim>
constexpr int kQueryBlocks = (kType == DType::F32 && kDim == 128) ? 2 : 3;
constexpr int kKeyBlocks = 2;

// delta of the queries of a block, written to shared and global memory; 0 past the end.
template <DType kType, int kDim>
__device__ void make_delta(const AttentionGradArgs& args, const OwnTile& own, int first_query,
                           float (&delta)[kOwnRows]) {
  constexpr int kRowThreads = kDim / kLanes;
  const AttentionShape& shape = args.shape;
  const int part = threadIdx.x % kRowThreads;
#pragma unroll
  for (int at = 0; at < kOwnRows; at += kTileThreads / kRowThreads) {
    const int row = at + static_cast<int>(threadIdx.x) / kRowThreads;
    const int query = first_query + row;
    float sum = 0;
    if (query < shape.length && part * kLanes < shape.dim) {
      float y[kLanes], dy[kLanes];
      const int64_t place = shape.y_at(own.sample, own.head, query) + part * kLanes;
      Vector<kType>::load(args.y.data, place, y);
      Vector<kType>::load(args.dy.data, place, dy);
      for (int i = 0; i < kLanes; ++i) sum = fmaf(dy[i], y[i], sum);
    }
    for (int step = kRowThreads / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(0xffffffff, sum, step);
    }
    if (part == 0) {
      delta[row] = sum;
      if (query < shape.length) args.delta[args.row(own.sample, own.head, query)] = sum;
    }
  }
}

template <DType kType, int kDim, bool kDrop>
__global__ void __launch_bounds__(kTileThreads, kQueryBlocks<kType, kDim>)
    tiled_attention_grad_q(AttentionGradArgs args) {
  using T = AttentionTile<kType, kDim>;
  using Element = typename T::Element;
  const AttentionShape& shape = args.shape;
  auto& shared = dynamic_shared<QueryTiles<kType, kDim>>();
  QueryWalk<kType, kDim> walk(shape);
  const OwnTile& own = walk.own;
  const OwnQueries& queries = walk.queries;
  const PairDraws draws(shape, own.sample);
  const uint64_t pairs = draws.head_start(own.head);
  T::copy_own(shared.q, walk.q, walk.pitch, walk.dim, walk.first_query, walk.length);
  T::copy_own(shared.dy,
              static_cast<const Element*>(args.dy.data) + shape.y_at(own.sample, own.head, 0),
              shape.heads * shape.dim, walk.dim, walk.first_query, walk.length);
  walk.copy_keys(shared, 0, walk.key);
  make_delta<kType, kDim>(args, own, walk.first_query, shared.delta);
  __syncthreads();
  float lse2[2], delta[2];
  for (int which = 0; which < 2; ++which) {
    const int query = queries.query[which];
    lse2[which] =
        query < walk.length ? args.lse[args.row(own.sample, own.head, query)] * kLog2E : 0.0f;
    delta[which] = shared.delta[warp_row() + lane_row(which)];
  }

  const float scale2 = shape.scale * kLog2E;
  float dq[kDim / kGroup][4] = {};
  walk.run(shared, [&](int stage) {
    uint32_t kept[2];
    if constexpr (kDrop) draws.kept_keys<T::kGroups>(kept, pairs, queries.warp_first, walk.key);
    float ds[T::kGroups][4] = {};
    T::multiply_rows(ds, shared.q + warp_row() * T::kPitch, shared.k[stage]);
    if (!queries.see_all(walk.key, T::kWalked)) queries.hide(ds, walk.key, -INFINITY);
    float dp[T::kGroups][4] = {};
    T::multiply_rows(dp, shared.dy + warp_row() * T::kPitch, shared.v[stage]);
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float factor = shape.dropout.scale;
        if constexpr (kDrop) factor = kept_or_zero(kept[i / 2], 4 * group + i % 2, factor);
        const float p = fast_exp2(fmaf(ds[group][i], scale2, -lse2[i / 2]));
        ds[group][i] = p * fmaf(dp[group][i], factor, -delta[i / 2]);
      }
    }
    T::multiply_sums(dq, ds, shared.k[stage]);
  });
  const float factor[2] = {shape.scale, shape.scale};
  T::store(static_cast<Element*>(args.dqkv.data) + shape.q_at(own.sample, own.head, 0), walk.pitch,
           walk.dim, queries.warp_first, walk.length, dq, factor);
}

// The keys of a block and the query tiles that see them: `tiles` for each head of a group.
template <int kWalked>
struct KeyWalk {
  int first_key, tiles;
  int head, query;  // current position

  __device__ KeyWalk(const AttentionShape& shape, const OwnTile& own)
      : first_key(own.tile * kOwnRows),
        tiles(0),
        head(own.head * static_cast<int>(shape.heads / shape.kv_heads)),
        query(first_key) {
    const int length = static_cast<int>(shape.length);
    const int last_key = min(first_key + kOwnRows, length) - 1;
    // First keys never decrease, so the tiles whose first query sees the last key, or one before
    // it, are exactly those up to the end of its document.
    for (int at = first_key + static_cast<int>(threadIdx.x) * kWalked;;
         at += kTileThreads * kWalked) {
      const bool sees = at < length && shape.first_key(own.sample, at) <= last_key;
      const int seeing = __syncthreads_count(sees);
      tiles += seeing;
      if (seeing < kTileThreads) break;
    }
  }

  __device__ void advance() {
    query += kWalked;
    if (query == first_key + tiles * kWalked) {
      query = first_key;
      ++head;
    }
  }
};

// Statistics of a query, fetched before they are needed.
struct QueryStats {
  float lse = 0, delta = 0;
  int first_key = 0;
  bool inside = false;

  __device__ void fetch(const AttentionGradArgs& args, int sample, int head, int query) {
    const int last = static_cast<int>(args.shape.length) - 1;
    inside = query <= last;
    const int64_t row = args.row(sample, head, min(query, last));
    lse = args.lse[row];
    delta = args.delta[row];
    first_key = static_cast<int>(args.shape.first_key(sample, min(query, last)));
  }
};

// dk and dv of a warp's 16 keys.
template <DType kType, int kDim, bool kDrop>
struct KeySums {
  using T = AttentionTile<kType, kDim>;
  float dk[kDim / kGroup][4] = {};
  float dv[kDim / kGroup][4] = {};

  // Sets p to 0 for pairs whose query does not see the key.
  static __device__ void hide(float (&p)[T::kGroups][4], int warp_key, int query,
                              const int* first_key) {
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = group * kGroup + lane_column() + i % 2;
        const int key = warp_key + lane_row(i / 2);
        const bool before = query + column < key;
        const bool elsewhere = first_key[column] > key;
        p[group][i] = before | elsewhere ? 0.0f : p[group][i];
      }
    }
  }

  // Adds the contribution of a tile of queries. `warp_key` is the first key of the warp.
  __device__ void add(const KeyTiles<kType, kDim>& shared, int stage, const AttentionShape& shape,
                      const PairDraws& draws, uint64_t pairs, int warp_key, int query) {
    const float2* stats = shared.stats[stage];
    const int* first_key = shared.first_key[stage];
    if (query + T::kWalked <= warp_key || first_key[0] >= warp_key + kWarpRows) return;
    uint32_t kept[4];
    if constexpr (kDrop) draws.kept_queries<T::kGroups>(kept, pairs, warp_key, query);
    float p[T::kGroups][4] = {};
    T::multiply_rows(p, shared.k + warp_row() * T::kPitch, shared.q[stage]);
    const float scale2 = shape.scale * kLog2E;
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = group * kGroup + lane_column() + i % 2;
        p[group][i] = fast_exp2(fmaf(p[group][i], scale2, -stats[column].x));
      }
    }
    if (query < warp_key + kWarpRows - 1 || first_key[T::kWalked - 1] > warp_key) {
      hide(p, warp_key, query, first_key);
    }
    float weight[T::kGroups][4];
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weight[group][i] = kDrop ? kept_or_zero(kept[i], 4 * group, p[group][i]) : p[group][i];
      }
    }
    T::multiply_sums(dv, weight, shared.dy[stage]);
    float dp[T::kGroups][4] = {};
    T::multiply_rows(dp, shared.v + warp_row() * T::kPitch, shared.dy[stage]);
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = group * kGroup + lane_column() + i % 2;
        float factor = shape.dropout.scale;
        if constexpr (kDrop) factor = kept_or_zero(kept[i], 4 * group, factor);
        p[group][i] *= fmaf(dp[group][i], factor, -stats[column].y);
      }
    }
    T::multiply_sums(dk, p, shared.q[stage]);
  }
};

template <DType kType, int kDim, bool kDrop>
__global__ void __launch_bounds__(kTileThreads, kKeyBlocks)
    tiled_attention_grad_kv(AttentionGradArgs args) {
  using T = AttentionTile<kType, kDim>;
  using Element = typename T::Element;
  const AttentionShape& shape = args.shape;
  auto& shared = dynamic_shared<KeyTiles<kType, kDim>>();
  const int length = static_cast<int>(shape.length);
  const int dim = static_cast<int>(shape.dim);
  const OwnTile own(static_cast<int>(shape.kv_heads), own_tiles(length));
  const PairDraws draws(shape, own.sample);
  const int64_t pitch = (shape.heads + 2 * shape.kv_heads) * dim;
  const auto* qkv = static_cast<const Element*>(shape.qkv.data);
  const auto* dy = static_cast<const Element*>(args.dy.data);
  const int64_t k_at = shape.k_at(own.sample, own.head, 0);
  const int64_t v_at = shape.v_at(own.sample, own.head, 0);
  KeyWalk<T::kWalked> walk(shape, own);
  const int first_key = walk.first_key;

  QueryStats stats;
  const auto fetch = [&](int stage) {
    T::copy_walked(shared.q[stage], qkv + shape.q_at(own.sample, walk.head, 0), pitch, dim,
                   walk.query, length);
    T::copy_walked(shared.dy[stage], dy + shape.y_at(own.sample, walk.head, 0), shape.heads * dim,
                   dim, walk.query, length);
    const int column = static_cast<int>(threadIdx.x);
    if (column < T::kWalked) stats.fetch(args, own.sample, walk.head, walk.query + column);
  };
  const auto keep_stats = [&](int stage) {
    const int column = static_cast<int>(threadIdx.x);
    if (column >= T::kWalked) return;
    // Past the end of the sample p becomes 0.
    shared.stats[stage][column] =
        stats.inside ? make_float2(stats.lse * kLog2E, stats.delta) : make_float2(INFINITY, 0.0f);
    shared.first_key[stage][column] = stats.first_key;
  };
  T::copy_own(shared.k, qkv + k_at, pitch, dim, first_key, length);
  T::copy_own(shared.v, qkv + v_at, pitch, dim, first_key, length);
  fetch(0);
  keep_stats(0);

  KeySums<kType, kDim, kDrop> sums;
  const int items = walk.tiles * static_cast<int>(shape.heads / shape.kv_heads);
  for (int item = 0; item < items; ++item) {
    await_copies();
    __syncthreads();
    const int head = walk.head;
    const int query = walk.query;
    if (item + 1 < items) {
      walk.advance();
      fetch((item + 1) % 2);
    }
    sums.add(shared, item % 2, shape, draws, draws.head_start(head), first_key + warp_row(), query);
    if (item + 1 < items) keep_stats((item + 1) % 2);
  }
  auto* dqkv = static_cast<Element*>(args.dqkv.data);
  const float dk_factor[2] = {shape.scale, shape.scale};
  const float dv_factor[2] = {shape.dropout.scale, shape.dropout.scale};
  T::store(dqkv + k_at, pitch, dim, first_key + warp_row(), length, sums.dk, dk_factor);
  T::store(dqkv + v_at, pitch, dim, first_key + warp_row(), length, sums.dv, dv_factor);
}

void backward(const Launch& launch, const AttentionShape& shape) {
  const AttentionGradArgs args = attention_grad_args(launch, shape);
  const int64_t tiles = launch.operands.at(1).shape.at(0) * own_tiles(shape.length);
  with_tile(shape, [&](auto type, auto dim, auto drop) {
    constexpr DType kType = decltype(type)::kValue;
    constexpr int kDim = decltype(dim)::value;
    constexpr bool kDrop = decltype(drop)::value;
    launch_tiles<QueryTiles<kType, kDim>>(tiled_attention_grad_q<kType, kDim, kDrop>,
                                          tiles * shape.heads, stream_of(launch), args);
    launch_tiles<KeyTiles<kType, kDim>>(tiled_attention_grad_kv<kType, kDim, kDrop>,
                                        tiles * shape.kv_heads, stream_of(launch), args);
  });
}

}  // namespace

void launch_tiled_attention_grad(const Launch& launch) {
  backward(launch, attention_shape(launch, kAttentionGradPlaces));
}

void launch_tiled_document_attention_grad(const Launch& launch) {
  backward(launch, attention_shape(launch, kDocumentGradPlaces));
}

}  // namespace weft::cuda
