// cross_entropy with and without its gradient on Hopper: a cluster of blocks keeps a row of logits
// in registers, so each logit is read once and each gradient written once. Blocks exchange maximum
// and sum through distributed shared memory and add them in a fixed order. A thread fetches its
// part of the cluster's next row while it stores that of the current one.
#include <cooperative_groups.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "runtime/cuda/device/check.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/reduction/loss.h"

namespace weft::cuda {

namespace {

constexpr int kSmallBlock = 512;  // threads, for rows that fit one block
constexpr int kBlock = 1024;
constexpr int kMaxSlots = 8;   // vectors per thread
constexpr int kMaxBlocks = 8;  // blocks per cluster, on any Hopper GPU
static_assert(kMinClusterRow == kSmallBlock * kMaxSlots / 2 * kVector);
static_assert(kMaxClusterRow == kMaxBlocks * kBlock * kMaxSlots * kVector);

// The sum of 2^(x - maximum) over some x.
struct Exp2Sum {
  float maximum;
  float sum;
};

// Reduces over all lanes; every lane gets the result. A lane without a maximum holds only -inf with
// the sum 0, or NaN, which propagates to the total.
__device__ Exp2Sum warp_merge(const Exp2Sum& own) {
  Exp2Sum all = own;
  for (int step = 16; step > 0; step /= 2) {
    all.maximum = fmaxf(all.maximum, __shfl_xor_sync(0xffffffff, all.maximum, step));
  }
  all.sum = own.sum == 0.0f ? 0.0f : own.sum * fast_exp2(own.maximum - all.maximum);
  for (int step = 16; step > 0; step /= 2) {
    all.sum += __shfl_xor_sync(0xffffffff, all.sum, step);
  }
  return all;
}

// Reduces over all blocks of the cluster; every thread gets the result. Calls alternate between
// parities, so that a block that is ahead does not overwrite what another still reads.
template <int kThreads>
__device__ Exp2Sum cluster_merge(const Exp2Sum& own, int parity) {
  namespace cg = cooperative_groups;
  __shared__ Exp2Sum of_warp[2][kThreads / 32];
  __shared__ Exp2Sum of_block[2][kMaxBlocks];
  const cg::cluster_group cluster = cg::this_cluster();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int blocks = static_cast<int>(cluster.num_blocks());
  const Exp2Sum warps = warp_merge(own);
  if (lane == 0) of_warp[parity][warp] = warps;
  __syncthreads();
  if (warp == 0) {
    Exp2Sum block{-INFINITY, 0.0f};
    if (lane < kThreads / 32) block = of_warp[parity][lane];
    block = warp_merge(block);
    Exp2Sum* slot = &of_block[parity][cluster.block_rank()];
    if (lane < blocks) *cluster.map_shared_rank(slot, lane) = block;
  }
  cluster.sync();
  Exp2Sum all{-INFINITY, 0.0f};
  if (lane < blocks) all = of_block[parity][lane];
  return warp_merge(all);
}

// Vectors of the half types.
template <DType kType>
struct Packed {
  using Pair = std::conditional_t<kType == DType::BF16, __nv_bfloat162, __half2>;
  static constexpr uint32_t kMin = kType == DType::BF16 ? 0xff80ff80 : 0xfc00fc00;  // -inf, -inf

  static __device__ uint32_t larger(uint32_t a, uint32_t b) {
    const Pair both = __hmax2(*reinterpret_cast<Pair*>(&a), *reinterpret_cast<Pair*>(&b));
    return *reinterpret_cast<const uint32_t*>(&both);
  }

  template <int kSlots>
  static __device__ float largest(const typename Vector<kType>::Raw (&row)[kSlots]) {
    uint32_t most = kMin;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const uint4 x = row[s].part[0];
      most = larger(most, larger(larger(x.x, x.y), larger(x.z, x.w)));
    }
    float value[kLanes];
    Vector<kType>::unpack({{make_uint4(most, most, most, most)}}, value);
    return fmaxf(value[0], value[1]);
  }
};

// Sum of the exponentials of a thread's part of a row.
template <DType kType, int kSlots>
__device__ Exp2Sum own_sum(const typename Vector<kType>::Raw (&row)[kSlots]) {
  const float maximum = Packed<kType>::largest(row) * kLog2E;
  const float base = maximum == -INFINITY ? 0.0f : maximum;
  float sum[2] = {};
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    float value[kLanes];
    Vector<kType>::unpack(row[s], value);
#pragma unroll
    for (int e = 0; e < kLanes; ++e) sum[e % 2] += fast_exp2(fmaf(value[e], kLog2E, -base));
  }
  return {maximum, sum[0] + sum[1]};
}

// `nothing` is zero, but the compiler must not know that. Otherwise it would keep the row as
// floats, in twice the registers, instead of unpacking it twice.
template <DType kType, int kThreads, int kSlots, bool kGrad>
__global__ void __launch_bounds__(kThreads, kBlock / kThreads)
    cluster_loss(LossArgs args, uint32_t nothing) {
  using V = Vector<kType>;
  const int blocks = static_cast<int>(cooperative_groups::this_cluster().num_blocks());
  const int rank = static_cast<int>(cooperative_groups::this_cluster().block_rank());
  const int n = static_cast<int>(args.n);
  const int first = (rank * kThreads + static_cast<int>(threadIdx.x)) * kLanes;
  const int stride = blocks * kThreads * kLanes;
  const bool last_inside = first + (kSlots - 1) * stride < n;  // the other slots always are
  const bool speaker = rank == 0 && threadIdx.x == 0;
  const int64_t clusters = gridDim.x / blocks;
  typename V::Raw raw[kSlots];
  const uint32_t least = Packed<kType>::kMin;
  raw[kSlots - 1].part[0] = make_uint4(least, least, least, least);
  const auto fetch = [&](int64_t row, int s) {
    if (s + 1 < kSlots || last_inside) {
      raw[s] = V::fetch(args.logits, row * n + first + s * stride);
    }
  };
  int64_t row = blockIdx.x / blocks;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) fetch(row, s);
  int next_target = args.targets[row];
  cooperative_groups::this_cluster().sync();  // all blocks must run before remote writes
  int parity = 0;
  for (; row < args.rows; row += clusters, parity ^= 1) {
    const bool more = row + clusters < args.rows;
    const int target = next_target;
    if (target >= n) __trap();
    float logit = 0;
    if (speaker && target >= 0) {
      logit = Elements{const_cast<void*>(args.logits), kType}.get(row * n + target);
    }
    if (more) next_target = args.targets[row + clusters];
    const Exp2Sum total = cluster_merge<kThreads>(own_sum<kType>(raw), parity);
    const float lse = (total.maximum + log2f(total.sum)) / kLog2E;
    if (speaker) {
      args.losses[row] = target < 0 ? 0.0f : lse - logit;
      if (args.lse != nullptr) args.lse[row] = lse;
    }
    const float scale = kGrad ? *args.dloss / *args.valid : 0.0f;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (kGrad && (s + 1 < kSlots || last_inside)) {
        float value[kLanes] = {};
        if (target >= 0) {
          uint4& x = raw[s].part[0];
          x = make_uint4(x.x ^ nothing, x.y ^ nothing, x.z ^ nothing, x.w ^ nothing);
          V::unpack(raw[s], value);
          logit_grads<kType>(value, lse, target - first - s * stride, scale);
        }
        V::store(args.dlogits, row * n + first + s * stride, value);
      }
      if (more) fetch(row + clusters, s);
    }
  }
}

template <DType kType, int kThreads, int kSlots, bool kGrad>
void launch_rows(const LossArgs& args, unsigned blocks, const Launch& launch) {
  const auto kernel = cluster_loss<kType, kThreads, kSlots, kGrad>;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {blocks, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.stream = stream_of(launch);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int active = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveClusters(&active, kernel, &config));
  CHECK(active > 0, "the GPU has no room for a cluster of ", blocks, " blocks of ", kThreads);
  const auto clusters = static_cast<unsigned>(std::clamp<int64_t>(args.rows, 1, active));
  config.gridDim = dim3(blocks * clusters);
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args, 0u));
}

// The fewest blocks that hold a row; each thread has at least five vectors.
template <DType kType, int kThreads, bool kGrad>
void launch_clusters(const LossArgs& args, const Launch& launch) {
  constexpr int64_t kSlot = int64_t{kThreads} * kVector;
  int64_t blocks = 1;
  while (blocks * kMaxSlots * kSlot < args.n) blocks *= 2;
  const int64_t slots = (args.n - 1) / (blocks * kSlot) + 1;
  const auto run = [&](auto count) {
    launch_rows<kType, kThreads, count.value, kGrad>(args, static_cast<unsigned>(blocks), launch);
  };
  if (slots == 5) return run(std::integral_constant<int, 5>());
  if (slots == 6) return run(std::integral_constant<int, 6>());
  if (slots == 7) return run(std::integral_constant<int, 7>());
  run(std::integral_constant<int, 8>());
}

template <bool kGrad>
void launch_type(const LossArgs& args, DType dtype, const Launch& launch) {
  const bool small = args.n <= int64_t{kSmallBlock} * kMaxSlots * kVector;
  const auto run = [&](auto type) {
    small ? launch_clusters<type.kValue, kSmallBlock, kGrad>(args, launch)
          : launch_clusters<type.kValue, kBlock, kGrad>(args, launch);
  };
  dtype == DType::BF16 ? run(DTypeTag<DType::BF16>()) : run(DTypeTag<DType::F16>());
}

}  // namespace

void launch_cluster_cross_entropy(const Launch& launch) {
  const LossArgs args = loss_args(launch);
  launch_type<false>(args, launch.operands.at(0).dtype, launch);
  launch_total_loss(args, launch.results.at(0), launch);
}

void launch_cluster_cross_entropy_both(const Launch& launch) {
  const LossArgs args = loss_both_args(launch);
  launch_type<true>(args, launch.operands.at(1).dtype, launch);
  launch_total_loss(args, launch.results.at(1), launch);
}

}  // namespace weft::cuda
