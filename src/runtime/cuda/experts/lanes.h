// What the kernels of experts share: runs of one or eight elements of a run-time type, so that a
// plain and a vector row are one kernel, and reductions over a warp.
#pragma once

#include "runtime/cuda/vector.h"

namespace weft::cuda {

inline constexpr int kWarp = 32;

template <int kCount>
__device__ void load_run(const Elements& from, int64_t i, float (&value)[kCount]) {
  if constexpr (kCount == 1) {
    value[0] = from.get(i);
  } else {
    load_vector(from, i, value);
  }
}

template <int kCount>
__device__ void store_run(const Elements& to, int64_t i, const float (&value)[kCount]) {
  if constexpr (kCount == 1) {
    to.put(i, value[0]);
  } else {
    store_vector(to, i, value);
  }
}

// The same tree in every lane, so all of them have the result.
template <class T, class Combine>
__device__ T warp_reduce(T value, Combine combine) {
  for (int half = kWarp / 2; half > 0; half /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, half));
  }
  return value;
}

template <class T>
__device__ T warp_sum(T value) {
  return warp_reduce(value, [](T a, T b) { return a + b; });
}

}  // namespace weft::cuda
