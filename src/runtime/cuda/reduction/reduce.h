// Reductions over the threads of a block, in a tree that depends only on the block size: the same
// bits every time. Block sizes are powers of two up to 1024.
#pragma once

namespace weft::cuda {

// Combines one value per thread; every thread gets the result. Can be called again at once.
template <class T, class Combine>
__device__ T block_reduce(T value, Combine combine) {
  __shared__ T partial[1024];
  partial[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      partial[threadIdx.x] = combine(partial[threadIdx.x], partial[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const T result = partial[0];
  __syncthreads();
  return result;
}

__device__ inline float block_sum(float value) {
  return block_reduce(value, [](float a, float b) { return a + b; });
}

__device__ inline float block_max(float value) {
  return block_reduce(value, [](float a, float b) { return fmaxf(a, b); });
}

// Sums term(row) over the rows of one column in a block of 32 columns by 32 lanes; lane 0 has the
// result. Lane l takes rows l, l + 32, ...; the lanes are then added in a tree.
template <class Term>
__device__ float column_sum(int64_t rows, bool inside, Term term) {
  __shared__ float partial[32][33];
  float sum = 0;
  if (inside) {
    for (int64_t row = threadIdx.y; row < rows; row += 32) sum += term(row);
  }
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = 16; half > 0; half /= 2) {
    if (threadIdx.y < half) {
      partial[threadIdx.y][threadIdx.x] += partial[threadIdx.y + half][threadIdx.x];
    }
    __syncthreads();
  }
  return partial[0][threadIdx.x];
}

}  // namespace weft::cuda
