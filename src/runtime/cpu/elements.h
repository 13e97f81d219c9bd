// How kernels read and write floating-point tensors: as runs of f32, in place when the tensor holds
// f32, otherwise converted through a buffer. So every kernel is written once, for f32, and rounds
// once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "plan/kernel.h"

namespace weft {

// Elements [offset, offset + n) as f32: the tensor's own memory, or `buffer` filled with them.
const float* load(const Tensor& tensor, int64_t offset, int64_t n, float* buffer);

// Where to compute the elements from `offset` on: the tensor's own memory, or `buffer`.
float* place(const Tensor& tensor, int64_t offset, float* buffer);

// Rounds the values computed at `place` into the tensor; a no-op for f32.
void store(const Tensor& tensor, int64_t offset, int64_t n, const float* computed);

// Rounds to the dtype and back, in place.
void round_to(DType dtype, int64_t n, float* values);

// The element of a 0-d f32 or i32 tensor.
inline float scalar_f32(const Tensor& tensor) {
  return *tensor.as<float>();
}
inline int32_t scalar_i32(const Tensor& tensor) {
  return *tensor.as<int32_t>();
}

inline int64_t ceil_div(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

// sum = a + b elementwise; sum may be a or b.
void add_rows(const float* a, const float* b, int64_t n, float* sum);

// sum += x
inline void add_to_row(const float* x, int64_t n, float* sum) {
  add_rows(sum, x, n, sum);
}

// The sum of a * b.
float dot_rows(const float* a, const float* b, int64_t n);

// The sum of x in a binary tree.
float tree_sum(const float* x, int64_t n);

// Rows per tile, so that a tile has about ten thousand elements.
inline int64_t tile_rows(int64_t length) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, length));
}

// Yes when every operand and result is f32, bf16, f16 or an integer.
Decision supports_cpu_dtypes(const Call& call);

// As above. If `type` is not f32, `rows` of its rows must also fit into a thread's scratch memory.
Decision supports_rows(const Call& call, const TensorType& type, int64_t rows);

}  // namespace weft
