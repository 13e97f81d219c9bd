// attention forward by tiles on matrix units. A block owns 64 queries of a head, 16 per warp, and
// walks over the keys they see with a running maximum, keeping its sums in registers. With s = q
// k^T, over the visible keys of a query: lse = log sum exp(scale s), y = sum c p v, where p =
// exp(scale s - lse) and c is the dropout factor. Half types round exp(scale s - maximum) before
// they multiply.
#include "runtime/cuda/attention/tiled_attention.h"

namespace weft::cuda {

namespace {

template <DType kType, int kDim>
struct alignas(16) ForwardTiles {
  using T = AttentionTile<kType, kDim>;
  typename T::Own q;
  typename T::Walked k[2];
  typename T::Walked v[2];
};

// Blocks per SM that the registers allow.
template <DType kType, int kDim>
constexpr int kForwardBlocks = kType == DType::F32 ? (kDim == 32 ? 3 : 2) : (kDim == 32 ? 4 : 3);

// The running softmax of a thread's two queries.
struct RunningSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};  // of s
  float total[2] = {0, 0};                    // of this thread's columns

  // Turns s of some keys into exp(scale (s - maximum)) and rescales y to the new maximum.
  template <int kGroups, int kWidth>
  __device__ void take(float (&s)[kGroups][4], float (&y)[kWidth][4], float scale2) {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      float largest = maximum[which];
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        largest = fmaxf(largest, fmaxf(s[group][2 * which], s[group][2 * which + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
      // A query whose document has not begun yet sees no keys so far.
      const float offset = largest == -INFINITY ? 0.0f : largest * scale2;
      const float shrink = fast_exp2(fmaf(maximum[which], scale2, -offset));
      maximum[which] = largest;
      float sum = 0;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 2 * which; i < 2 * which + 2; ++i) {
          s[group][i] = fast_exp2(fmaf(s[group][i], scale2, -offset));
          sum += s[group][i];
        }
      }
      total[which] = fmaf(total[which], shrink, sum);
#pragma unroll
      for (int group = 0; group < kWidth; ++group) {
        y[group][2 * which] *= shrink;
        y[group][2 * which + 1] *= shrink;
      }
    }
  }

  // Completes the sums over all columns.
  __device__ void finish() {
    for (int which = 0; which < 2; ++which) {
      total[which] += __shfl_xor_sync(0xffffffff, total[which], 1);
      total[which] += __shfl_xor_sync(0xffffffff, total[which], 2);
    }
  }
};

template <DType kType, int kDim, bool kDrop>
__global__ void __launch_bounds__(kTileThreads, kForwardBlocks<kType, kDim>)
    tiled_attention(AttentionShape shape, void* y_data, float* lse) {
  using T = AttentionTile<kType, kDim>;
  using Element = typename T::Element;
  auto& shared = dynamic_shared<ForwardTiles<kType, kDim>>();
  QueryWalk<kType, kDim> walk(shape);
  const OwnTile& own = walk.own;
  const OwnQueries& queries = walk.queries;
  const PairDraws draws(shape, own.sample);
  const uint64_t pairs = draws.head_start(own.head);
  T::copy_own(shared.q, walk.q, walk.pitch, walk.dim, walk.first_query, walk.length);
  walk.copy_keys(shared, 0, walk.key);

  float y[kDim / kGroup][4] = {};
  RunningSoftmax softmax;
  walk.run(shared, [&](int stage) {
    uint32_t kept[2];
    if constexpr (kDrop) draws.kept_keys<T::kGroups>(kept, pairs, queries.warp_first, walk.key);
    float s[T::kGroups][4] = {};
    T::multiply_rows(s, shared.q + warp_row() * T::kPitch, shared.k[stage]);
    if (!queries.see_all(walk.key, T::kWalked)) queries.hide(s, walk.key, -INFINITY);
    softmax.take(s, y, shape.scale * kLog2E);
    if constexpr (kDrop) {
#pragma unroll
      for (int group = 0; group < T::kGroups; ++group) {
        for (int i = 0; i < 4; ++i) {
          s[group][i] = kept_or_zero(kept[i / 2], 4 * group + i % 2, s[group][i]);
        }
      }
    }
    T::multiply_sums(y, s, shared.v[stage]);
  });

  softmax.finish();
  const float factor[2] = {shape.dropout.scale / softmax.total[0],
                           shape.dropout.scale / softmax.total[1]};
  T::store(static_cast<Element*>(y_data) + shape.y_at(own.sample, own.head, 0),
           shape.heads * shape.dim, walk.dim, queries.warp_first, walk.length, y, factor);
  for (int which = 0; which < 2; ++which) {
    if (lane_column() == 0 && queries.query[which] < walk.length) {
      lse[(own.sample * shape.heads + own.head) * shape.length + queries.query[which]] =
          softmax.maximum[which] * shape.scale + logf(softmax.total[which]);
    }
  }
}

void forward(const Launch& launch, const AttentionShape& shape) {
  const int64_t blocks = launch.operands.at(0).shape.at(0) * shape.heads * own_tiles(shape.length);
  with_tile(shape, [&](auto type, auto dim, auto drop) {
    constexpr DType kType = decltype(type)::kValue;
    constexpr int kDim = decltype(dim)::value;
    launch_tiles<ForwardTiles<kType, kDim>>(
        tiled_attention<kType, kDim, decltype(drop)::value>, blocks, stream_of(launch), shape,
        launch.results.at(0).data, launch.results.at(1).as<float>());
  });
}

}  // namespace

void launch_tiled_attention(const Launch& launch) {
  forward(launch, attention_shape(launch, kAttentionPlaces));
}

void launch_tiled_document_attention(const Launch& launch) {
  forward(launch, attention_shape(launch, kDocumentPlaces));
}

}  // namespace weft::cuda
