// A matmul as cuBLASLt sees it, and the aligned copies it uses when the layout of its matrices
// makes the library slow. Plain C++ in every build, because the plan counts the copies.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/op.h"

namespace weft::cuda {

// Column-major: our row-major C = A B becomes C^T = B^T A^T, so B is the left factor.
struct GemmShape {
  int64_t rows = 0;  // of the column-major result: the last dim of ours
  int64_t cols = 0;
  int64_t depth = 0;
  bool transpose_left = false;
  bool transpose_right = false;
  bool bias = false;
  bool tf32 = false;  // rounds the factors
  DType in = DType::F32;
  DType out = DType::F32;
  int64_t right_pitch = 0;  // elements between columns of the right factor; 0: contiguous

  auto operator<=>(const GemmShape&) const = default;  // NOLINT(modernize-use-nullptr): not one
};

// The matmul of operands `first` and `first` + 1.
GemmShape gemm_shape(const Call& call, size_t first);

// What a matrix stores as its contiguous columns.
struct GemmColumns {
  int64_t length = 0;
  int64_t count = 0;
};
GemmColumns left_columns(const GemmShape& shape);
GemmColumns right_columns(const GemmShape& shape);

// Copies for a large half-type matmul with a matrix whose column length is not a multiple of 16
// bytes, such as 50257 logits. The library then runs at a fifth of its speed, even with a larger
// pitch. Such columns are copied and padded with zeros: all of the left factor, and of the right
// factor and the result those of one block of the result's columns.
struct GemmCopies {
  GemmShape shape;         // with padded sizes; its columns are those of a block
  int64_t left_bytes = 0;  // per copy; 0: none, the matrix is aligned
  int64_t right_bytes = 0;
  int64_t result_bytes = 0;
  int64_t bias_bytes = 0;

  int64_t bytes() const { return left_bytes + right_bytes + result_bytes + bias_bytes; }
};

// nullopt: the matmul runs without copies.
std::optional<GemmCopies> gemm_copies(const GemmShape& shape);

// Number of columns of the block that begins at column `start` of the full matmul. Where they are
// elements of the right factor's columns, the remainder after full vectors forms a small last
// block.
int64_t block_columns(const GemmShape& full, const GemmCopies& copies, int64_t start);

// Length of a column after padding to full vectors.
int64_t filled_up(int64_t length);

}  // namespace weft::cuda
