// Rows of tokens on their way to experts and back: a block per token, whose threads move runs of
// its columns. And rows times one weight each: a warp per row.
#include <algorithm>

#include "runtime/cuda/device/check.h"
#include "runtime/cuda/experts/lanes.h"
#include "runtime/cuda/launches.h"
#include "runtime/expert_rows.h"

namespace weft::cuda {

namespace {

constexpr int kWarps = 8;

// Words are 16 bytes, or one element.
template <class Word>
__global__ void dispatch(const Word* x, RowPlaces places, Word* rows, int64_t words) {
  const int64_t token = blockIdx.x;
  const TokenRows own = places.of(token);
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x) {
    const Word word = x[token * words + i];
    for (int64_t choice = 0; choice < places.choices; ++choice) {
      const int64_t row = own.row(choice);
      if (row >= 0) rows[row * words + i] = word;
    }
  }
}

// In the order of the choices, from 0 on.
template <int kCount>
__global__ void combine(Elements rows, RowPlaces places, Elements y, int64_t length) {
  const int64_t token = blockIdx.x;
  const TokenRows own = places.of(token);
  for (int64_t i = threadIdx.x * kCount; i < length; i += blockDim.x * kCount) {
    float sum[kCount] = {};
#pragma unroll 4
    for (int64_t choice = 0; choice < places.choices; ++choice) {
      const int64_t row = own.row(choice);
      if (row < 0) continue;
      float value[kCount];
      load_run(rows, row * length + i, value);
      for (int e = 0; e < kCount; ++e) sum[e] += value[e];
    }
    store_run(y, token * length + i, sum);
  }
}

template <class Word>
__global__ void dispatch_weights(const Word* weights, RowPlaces places, Word* rows) {
  const int64_t i = global_thread();
  if (i >= places.tokens * places.choices) return;
  const int64_t row = places.of(i / places.choices).row(i % places.choices);
  if (row >= 0) rows[row] = weights[i];
}

template <class Word>
__global__ void combine_weights(const Word* rows, RowPlaces places, Word* weights) {
  const int64_t i = global_thread();
  if (i >= places.tokens * places.choices) return;
  const int64_t row = places.of(i / places.choices).row(i % places.choices);
  weights[i] = row >= 0 ? rows[row] : Word(0);
}

// The row of this warp.
__device__ int64_t warp_row() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
}

template <int kCount>
__global__ void scale_rows(Elements x, const float* w, Elements y, int64_t count, int64_t length) {
  const int64_t row = warp_row();
  if (row >= count) return;
  for (int64_t i = threadIdx.x * kCount; i < length; i += kWarp * kCount) {
    float value[kCount];
    load_run(x, row * length + i, value);
    for (int e = 0; e < kCount; ++e) value[e] *= w[row];
    store_run(y, row * length + i, value);
  }
}

template <int kCount>
__global__ void scale_rows_grad(Elements dy, Elements x, const float* w, Elements dx, float* dw,
                                int64_t count, int64_t length) {
  const int64_t row = warp_row();
  if (row >= count) return;
  float dot = 0;
  for (int64_t i = threadIdx.x * kCount; i < length; i += kWarp * kCount) {
    float value[kCount], d[kCount];
    load_run(x, row * length + i, value);
    load_run(dy, row * length + i, d);
    for (int e = 0; e < kCount; ++e) {
      dot += d[e] * value[e];
      d[e] *= w[row];
    }
    store_run(dx, row * length + i, d);
  }
  dot = warp_sum(dot);
  if (threadIdx.x == 0) dw[row] = dot;
}

// Threads for `runs` of work in a block: full warps.
unsigned row_threads(int64_t runs) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((runs + kWarp - 1) / kWarp * kWarp, kWarp, kThreads));
}

template <class Word>
void dispatch_words(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& rows = launch.results.at(0);
  const RowPlaces places = row_places(rows, launch.operands.at(1));
  const int64_t words = row_length(x) * dtype_bytes(x.dtype) / static_cast<int64_t>(sizeof(Word));
  dispatch<<<blocks_for(places.tokens, 1), row_threads(words), 0, stream_of(launch)>>>(
      x.as<const Word>(), places, rows.as<Word>(), words);
  CUDA_CHECK(cudaGetLastError());
}

template <int kCount>
void combine_runs(const Launch& launch) {
  const Tensor& rows = launch.operands.at(0);
  const RowPlaces places = row_places(rows, launch.operands.at(1));
  const int64_t length = row_length(rows);
  combine<kCount>
      <<<blocks_for(places.tokens, 1), row_threads(length / kCount), 0, stream_of(launch)>>>(
          elements(rows), places, elements(launch.results.at(0)), length);
  CUDA_CHECK(cudaGetLastError());
}

template <int kCount>
void scale_runs(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  scale_rows<kCount>
      <<<blocks_for(row_count(x), kWarps), dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
          elements(x), launch.operands.at(1).as<const float>(), elements(launch.results.at(0)),
          row_count(x), row_length(x));
  CUDA_CHECK(cudaGetLastError());
}

template <int kCount>
void scale_runs_grad(const Launch& launch) {
  const Tensor& x = launch.operands.at(1);
  scale_rows_grad<kCount>
      <<<blocks_for(row_count(x), kWarps), dim3(kWarp, kWarps), 0, stream_of(launch)>>>(
          elements(launch.operands.at(0)), elements(x), launch.operands.at(2).as<const float>(),
          elements(launch.results.at(0)), launch.results.at(1).as<float>(), row_count(x),
          row_length(x));
  CUDA_CHECK(cudaGetLastError());
}

// Calls action(a word of the size of an element).
template <class Action>
void with_word(DType dtype, Action action) {
  dtype_bytes(dtype) == 4 ? action(uint32_t()) : action(uint16_t());
}

}  // namespace

void launch_vector_dispatch(const Launch& launch) {
  dispatch_words<uint4>(launch);
}
void launch_dispatch(const Launch& launch) {
  with_word(launch.results.at(0).dtype, [&](auto word) { dispatch_words<decltype(word)>(launch); });
}

void launch_vector_combine(const Launch& launch) {
  combine_runs<kLanes>(launch);
}
void launch_combine(const Launch& launch) {
  combine_runs<1>(launch);
}

void launch_dispatch_weights(const Launch& launch) {
  const Tensor& rows = launch.results.at(0);
  const RowPlaces places = row_places(rows, launch.operands.at(1));
  with_word(rows.dtype, [&](auto word) {
    using Word = decltype(word);
    dispatch_weights<<<blocks_for(places.tokens * places.choices, kThreads), kThreads, 0,
                       stream_of(launch)>>>(launch.operands.at(0).as<const Word>(), places,
                                            rows.as<Word>());
  });
  CUDA_CHECK(cudaGetLastError());
}

void launch_combine_weights(const Launch& launch) {
  const Tensor& rows = launch.operands.at(0);
  const RowPlaces places = row_places(rows, launch.operands.at(1));
  with_word(rows.dtype, [&](auto word) {
    using Word = decltype(word);
    combine_weights<<<blocks_for(places.tokens * places.choices, kThreads), kThreads, 0,
                      stream_of(launch)>>>(rows.as<const Word>(), places,
                                           launch.results.at(0).as<Word>());
  });
  CUDA_CHECK(cudaGetLastError());
}

void launch_vector_scale_rows(const Launch& launch) {
  scale_runs<kLanes>(launch);
}
void launch_scale_rows(const Launch& launch) {
  scale_runs<1>(launch);
}
void launch_vector_scale_rows_grad(const Launch& launch) {
  scale_runs_grad<kLanes>(launch);
}
void launch_scale_rows_grad(const Launch& launch) {
  scale_runs_grad<1>(launch);
}

}  // namespace weft::cuda
