// A matrix product as cuBLASLt sees it, and the copies that one runs on whose matrices lie so that
// the library is slow. Plain C++ that every build has: the plan counts the copies.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/op.h"

namespace weft::cuda {

// Column-major, so that our row-major C = A B is its C^T = B^T A^T: B stands left.
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
  int64_t right_pitch = 0;  // elements from column to column of the right factor; 0: they lie close

  auto operator<=>(const GemmShape&) const = default;  // NOLINT(modernize-use-nullptr): not one
};

// The product of operands `first` and the next one.
GemmShape gemm_shape(const Call& call, size_t first);

// What the columns of a matrix in memory are.
struct GemmColumns {
  int64_t length = 0;
  int64_t count = 0;
};
GemmColumns left_columns(const GemmShape& shape);
GemmColumns right_columns(const GemmShape& shape);

// A large product of half types of which a matrix has columns of a length that is no multiple of 16
// bytes, as 50257 logits: the library multiplies at a fifth of its speed, also where such columns
// lie further apart. They are copied and filled up with zeros: all of the left factor, and of the
// right factor and the result those that belong to a block of the result's columns.
struct GemmCopies {
  GemmShape shape;         // with sizes filled up; its columns are those of a block
  int64_t left_bytes = 0;  // of each copy; 0: none, the matrix lies well
  int64_t right_bytes = 0;
  int64_t result_bytes = 0;
  int64_t bias_bytes = 0;

  int64_t bytes() const { return left_bytes + right_bytes + result_bytes + bias_bytes; }
};

// nullopt: the product runs as it is.
std::optional<GemmCopies> gemm_copies(const GemmShape& shape);

// Columns of the block that begins at column `start` of the whole product. Where they are elements
// of the right factor's columns, those beyond a whole number of vectors are in a small last block.
int64_t block_columns(const GemmShape& whole, const GemmCopies& copies, int64_t start);

// Elements that a column of so many is filled up to: whole vectors.
int64_t filled_up(int64_t length);

}  // namespace weft::cuda
