// Matrix products by tiles of the result, and the sum over rows.
#include "graph/op.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/partials.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kTileFloats = kGemmRows * kGemmCols;
static_assert(kGemmScratchFloats + kTileFloats + kGemmCols <= ThreadTeam::kScratchFloats);

// The product as a plain one: rows x depth times depth x cols.
struct Product {
  MatrixView a, b;
  int64_t rows = 0, cols = 0, depth = 0;
};

Product product_of(const Launch& launch) {
  const Tensor& a = launch.operands.at(0);
  const Tensor& b = launch.operands.at(1);
  const int64_t a_length = row_length(a.shape);
  const int64_t b_length = row_length(b.shape);
  const MatrixView a_view = matrix(a.data, a.dtype, a_length);
  const MatrixView b_view = matrix(b.data, b.dtype, b_length);
  if (launch.call->bool_attr("ta")) {
    return {transposed(a_view), b_view, a_length, b_length, row_count(a.shape)};
  }
  if (launch.call->bool_attr("tb")) {
    return {a_view, transposed(b_view), row_count(a.shape), b.shape.at(0), a_length};
  }
  return {a_view, b_view, row_count(a.shape), b_length, a_length};
}

WEFT_CLONES void add_row(const float* from, int64_t n, float* to) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

void multiply_tile(const Launch& launch, const Product& product, int64_t row, int64_t col,
                   float* scratch) {
  const Tensor& y = launch.results[0];
  const GemmShape shape{std::min(kGemmRows, product.rows - row),
                        std::min(kGemmCols, product.cols - col), product.depth};
  float* buffer = scratch + kGemmScratchFloats;
  const int64_t first = row * product.cols + col;
  float* c = place(y, first, buffer);
  const int64_t c_stride = c == buffer ? kGemmCols : product.cols;
  gemm(shape, from(product.a, row, 0), from(product.b, 0, col), c, c_stride, GemmMode::Store,
       scratch);
  const float* bias = launch.operands.size() > 2
                          ? load(launch.operands[2], col, shape.cols, buffer + kTileFloats)
                          : nullptr;
  for (int64_t r = 0; r < shape.rows; ++r) {
    float* c_row = c + r * c_stride;
    if (bias != nullptr) add_row(bias, shape.cols, c_row);
    store(y, first + r * product.cols, shape.cols, c_row);
  }
}

void launch_matmul(const Launch& launch) {
  const Product product = product_of(launch);
  const int64_t across = ceil_div(product.cols, kGemmCols);
  const int64_t down = ceil_div(product.rows, kGemmRows);
  team(launch).run(down * across, [&](int64_t tile, float* scratch) {
    multiply_tile(launch, product, tile / across * kGemmRows, tile % across * kGemmCols, scratch);
  });
}

void launch_sum_rows(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const int64_t length = row_length(x.shape);
  const Partials partials(row_count(x.shape), length, launch.workspace);
  team(launch).run(partials.chunks(), [&](int64_t chunk, float* scratch) {
    float* sum = partials.start(chunk);
    for (int64_t row = partials.first_row(chunk); row < partials.end_row(chunk); ++row) {
      add_row(load(x, row * length, length, scratch), length, sum);
    }
  });
  partials.combine(team(launch), launch.results.at(0));
}

Decision supports_sum_rows(const Call& call) {
  return supports_rows(call, call.type(0), 1);
}

int64_t sum_rows_workspace(const Call& call) {
  return Partials::bytes(row_count(call.type(0).shape), row_length(call.type(0).shape));
}

}  // namespace

std::span<const Kernel> cpu_matmul_kernels() {
  static const Kernel rows[] = {
      {"matmul", "tiled", supports_cpu_dtypes, nullptr, launch_matmul},
      {"sum_rows", "chunks", supports_sum_rows, sum_rows_workspace, launch_sum_rows},
  };
  return rows;
}

}  // namespace weft
