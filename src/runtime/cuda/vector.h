// Eight adjacent elements at a time, as f32: one 16-byte access for half types, two for f32.
// Kernels are templates on the stored type; `with_dtype` picks the instance on the host.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/instructions.h"
#include "runtime/cuda/kernels.h"

namespace weft::cuda {

inline constexpr int kLanes = static_cast<int>(kVector);

// The type of an element in memory.
template <DType kType>
using Stored = std::conditional_t<kType == DType::F32, float,
                                  std::conditional_t<kType == DType::BF16, __nv_bfloat16, __half>>;

template <DType kType>
struct Vector {
  // The elements as stored, to be fetched long before they are needed.
  struct Raw {
    uint4 part[kType == DType::F32 ? 2 : 1];
  };

  static __device__ Raw fetch(const void* data, int64_t i) {
    Raw raw;
    if constexpr (kType == DType::F32) {
      const uint4* from = reinterpret_cast<const uint4*>(static_cast<const float*>(data) + i);
      raw.part[0] = from[0];
      raw.part[1] = from[1];
    } else {
      raw.part[0] = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + i);
    }
    return raw;
  }

  static __device__ void unpack(const Raw& raw, float (&value)[kLanes]) {
    if constexpr (kType == DType::F32) {
      for (int p = 0; p < 2; ++p) {
        const uint4 bits = raw.part[p];
        value[4 * p] = f32_from_bits(bits.x), value[4 * p + 1] = f32_from_bits(bits.y);
        value[4 * p + 2] = f32_from_bits(bits.z), value[4 * p + 3] = f32_from_bits(bits.w);
      }
    } else {
      const uint32_t pair[4] = {raw.part[0].x, raw.part[0].y, raw.part[0].z, raw.part[0].w};
      for (int p = 0; p < 4; ++p) {
        if constexpr (kType == DType::BF16) {
          value[2 * p] = f32_from_bits(pair[p] << 16);
          value[2 * p + 1] = f32_from_bits(pair[p] & 0xffff0000);
        } else {
          const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&pair[p]));
          value[2 * p] = both.x;
          value[2 * p + 1] = both.y;
        }
      }
    }
  }

  static __device__ void load(const void* data, int64_t i, float (&value)[kLanes]) {
    unpack(fetch(data, i), value);
  }

  static __device__ void store(void* data, int64_t i, const float (&value)[kLanes]) {
    if constexpr (kType == DType::F32) {
      float4* to = reinterpret_cast<float4*>(static_cast<float*>(data) + i);
      to[0] = make_float4(value[0], value[1], value[2], value[3]);
      to[1] = make_float4(value[4], value[5], value[6], value[7]);
    } else {
      uint32_t pair[4];
      for (int p = 0; p < 4; ++p) {
        pair[p] = pack(Stored<kType>(), value[2 * p], value[2 * p + 1]);
      }
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + i) =
          make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
  }
};

// The same for a type known only at run time: the branch is uniform across threads.
__device__ inline void load_vector(const Elements& from, int64_t i, float (&value)[kLanes]) {
  if (from.dtype == DType::F32) {
    Vector<DType::F32>::load(from.data, i, value);
  } else if (from.dtype == DType::BF16) {
    Vector<DType::BF16>::load(from.data, i, value);
  } else {
    Vector<DType::F16>::load(from.data, i, value);
  }
}

__device__ inline void store_vector(const Elements& to, int64_t i, const float (&value)[kLanes]) {
  if (to.dtype == DType::F32) {
    Vector<DType::F32>::store(to.data, i, value);
  } else if (to.dtype == DType::BF16) {
    Vector<DType::BF16>::store(to.data, i, value);
  } else {
    Vector<DType::F16>::store(to.data, i, value);
  }
}

// Rounds each element as a store and a load would.
__device__ inline void round_vector(DType dtype, float (&value)[kLanes]) {
  if (dtype == DType::BF16) {
    for (float& x : value) x = __bfloat162float(__float2bfloat16_rn(x));
  } else if (dtype == DType::F16) {
    for (float& x : value) x = __half2float(__float2half_rn(x));
  }
}

template <DType kType>
struct DTypeTag {
  static constexpr DType kValue = kType;
};

// Calls action(DTypeTag<dtype>()).
template <class Action>
void with_dtype(DType dtype, Action action) {
  switch (dtype) {
    case DType::F32:
      return action(DTypeTag<DType::F32>());
    case DType::BF16:
      return action(DTypeTag<DType::BF16>());
    case DType::F16:
      return action(DTypeTag<DType::F16>());
    default:
      CHECK(false, "no kernel for ", dtype_name(dtype));
  }
}

// Grid size for threads that handle eight elements each.
inline unsigned vector_blocks(int64_t elements) {
  return blocks_for(elements / kVector, kThreads);
}

// The first element of this thread.
__device__ inline int64_t vector_start() {
  return global_thread() * kLanes;
}

// Two sums over the threads of a block of kWarps warps in a fixed tree; every thread gets them.
// Consecutive calls of a block must alternate between two `partial` arrays.
template <int kWarps>
__device__ float2 fast_block_sums(float x, float y, float2 (&partial)[kWarps]) {
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xffffffff, x, step);
    y += __shfl_xor_sync(0xffffffff, y, step);
  }
  if constexpr (kWarps == 1) return make_float2(x, y);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = make_float2(x, y);
  __syncthreads();
  float2 sum = make_float2(0, 0);
  for (int warp = 0; warp < kWarps; ++warp) {
    sum.x += partial[warp].x;
    sum.y += partial[warp].y;
  }
  return sum;
}

// One such sum; can be called again at once.
template <int kWarps>
__device__ float fast_block_sum(float value) {
  __shared__ float2 partial[kWarps];
  const float sum = fast_block_sums(value, 0, partial).x;
  if constexpr (kWarps > 1) __syncthreads();
  return sum;
}

}  // namespace weft::cuda
