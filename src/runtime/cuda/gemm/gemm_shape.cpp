#include "runtime/cuda/gemm/gemm_shape.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "plan/memory.h"
#include "runtime/cuda/kernels.h"

namespace weft::cuda {

namespace {

constexpr int64_t kHalfBytes = 2;
constexpr int64_t kMaxBlockBytes = int64_t{128} << 20;  // for the copies of one block
constexpr int64_t kMinBlock = 128;   // columns that the library processes together
constexpr int64_t kMaxBlock = 8192;  // enough to keep any GPU busy

// Copies pay off above this many multiplications in total and per copied element: on an H200
// copying an element there and back takes as long as the library loses in 80 multiplications.
constexpr double kMinTerms = 0x1p29;
constexpr int64_t kTermsPerElement = 128;

// A double, as the operation count of absurd sizes overflows int64.
double volume(std::initializer_list<int64_t> sizes) {
  double all = 1;
  for (const int64_t size : sizes) all *= static_cast<double>(size);
  return all;
}

int64_t elements(const GemmColumns& columns) {
  return columns.length * columns.count;
}

// The shape with its column lengths padded, except for the dimension that is split into blocks.
GemmShape with_filled_sizes(const GemmShape& shape) {
  GemmShape filled = shape;
  filled.rows = filled_up(shape.rows);
  if (!shape.transpose_right) filled.depth = filled_up(shape.depth);
  return filled;
}

}  // namespace

int64_t filled_up(int64_t length) {
  return (length + kVector - 1) / kVector * kVector;
}

GemmShape gemm_shape(const Call& call, size_t first) {
  const TensorType& a = call.type(first);
  const TensorType& b = call.type(first + 1);
  GemmShape shape;
  shape.in = a.dtype;
  shape.out = call.results.at(0).dtype;
  shape.bias = first == 0 && call.operands.size() > 2;
  shape.transpose_left = call.bool_attr("tb");
  shape.transpose_right = call.bool_attr("ta");
  shape.rows = shape.transpose_left ? row_count(b) : row_length(b);
  shape.cols = shape.transpose_right ? row_length(a) : row_count(a);
  shape.depth = shape.transpose_right ? row_count(a) : row_length(a);
  return shape;
}

GemmColumns left_columns(const GemmShape& shape) {
  if (shape.transpose_left) return {shape.depth, shape.rows};
  return {shape.rows, shape.depth};
}

GemmColumns right_columns(const GemmShape& shape) {
  if (shape.transpose_right) return {shape.cols, shape.depth};
  return {shape.depth, shape.cols};
}

std::optional<GemmCopies> gemm_copies(const GemmShape& shape) {
  if (dtype_bytes(shape.in) != kHalfBytes) return std::nullopt;
  GemmCopies copies{.shape = with_filled_sizes(shape)};
  GemmShape& block = copies.shape;
  const bool left = block != shape;
  const bool right = right_columns(shape).length % kVector != 0;
  const bool result = block.rows != shape.rows;
  if (!left && !right) return std::nullopt;

  const double terms = volume({shape.rows, shape.cols, shape.depth});
  const int64_t copied = (left ? elements(left_columns(shape)) : 0) +
                         (right ? elements(right_columns(shape)) : 0) +
                         (result ? shape.rows * shape.cols : 0);
  if (terms < kMinTerms || terms < volume({kTermsPerElement, copied})) {
    return std::nullopt;
  }

  const int64_t right_bytes = right ? block.depth * kHalfBytes : 0;  // per column of the result
  const int64_t result_bytes = result ? block.rows * dtype_bytes(shape.out) : 0;
  const auto most = static_cast<uint64_t>(kMaxBlockBytes / (right_bytes + result_bytes));
  block.cols = std::min(
      std::clamp(static_cast<int64_t>(std::bit_floor(most)), kMinBlock, kMaxBlock), shape.cols);
  if (left) copies.left_bytes = align_up(elements(left_columns(block)) * kHalfBytes);
  copies.right_bytes = align_up(filled_up(block.cols) * right_bytes);
  copies.result_bytes = align_up(block.cols * result_bytes);
  if (shape.bias && result) copies.bias_bytes = align_up(block.rows * kHalfBytes);
  return copies;
}

int64_t block_columns(const GemmShape& full, const GemmCopies& copies, int64_t start) {
  const int64_t cols = std::min(copies.shape.cols, full.cols - start);
  const bool full_vectors = !full.transpose_right || cols % kVector == 0;
  return full_vectors || cols < kMinBlock ? cols : cols - cols % kMinBlock;
}

}  // namespace weft::cuda
