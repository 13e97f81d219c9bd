#include "runtime/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"

namespace weft {

namespace {

// Rows and columns of the product that are held in registers while a panel is multiplied.
constexpr int kPanelRows = 6;
constexpr int kPanelCols = 32;
static_assert(kGemmRows % kPanelRows == 0 && kGemmCols % kPanelCols == 0);

using MultiplyPanels = void (*)(int64_t depth, const float* a, const float* b, float* c);

// c[6][32] = sum over p of a[p][6] * b[p][32], `kWidth` columns at a time: as many as leave the
// accumulators in registers.
template <int kWidth>
[[gnu::always_inline]] inline void multiply_panels(int64_t depth, const float* a, const float* b,
                                                   float* c) {
  constexpr int kLanes = kWidth / 2;
  typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));
  for (int col = 0; col < kPanelCols; col += kWidth) {
    Vector sum[kPanelRows][2] = {};
    for (int64_t p = 0; p < depth; ++p) {
      const float* terms = b + p * kPanelCols + col;
      const Vector left = *reinterpret_cast<const Vector*>(terms);
      const Vector right = *reinterpret_cast<const Vector*>(terms + kLanes);
      for (int row = 0; row < kPanelRows; ++row) {
        const float factor = a[p * kPanelRows + row];
        sum[row][0] += left * factor;
        sum[row][1] += right * factor;
      }
    }
    for (int row = 0; row < kPanelRows; ++row) {
      std::memcpy(c + row * kPanelCols + col, sum[row], sizeof sum[row]);
    }
  }
}

void multiply_panels_portable(int64_t depth, const float* a, const float* b, float* c) {
  multiply_panels<8>(depth, a, b, c);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void multiply_panels_avx2(int64_t depth, const float* a, const float* b,
                                                  float* c) {
  multiply_panels<16>(depth, a, b, c);
}

[[gnu::target("avx512f,avx512vl")]] void multiply_panels_avx512(int64_t depth, const float* a,
                                                                const float* b, float* c) {
  multiply_panels<32>(depth, a, b, c);
}
#endif

MultiplyPanels choose_multiply_panels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_panels_avx512;
  if (__builtin_cpu_supports("avx2")) return multiply_panels_avx2;
#endif
  return multiply_panels_portable;
}

struct LoadF32 {
  using Stored = float;
  float operator()(float value) const { return value; }
};
struct LoadBF16 {
  using Stored = uint16_t;
  float operator()(uint16_t value) const { return f32_from_bf16(value); }
};
struct LoadF16 {
  using Stored = uint16_t;
  float operator()(uint16_t value) const { return f32_from_f16(value); }
};

// packed[p][kWidth] = source(p * depth_stride + i * lane_stride), zero for i >= lanes.
template <int kWidth, class Load>
void pack_panel(const typename Load::Stored* source, int64_t lane_stride, int64_t depth_stride,
                int64_t lanes, int64_t depth, float* packed) {
  const Load load;
  if (lanes < kWidth) std::fill(packed, packed + depth * kWidth, 0.0f);
  if (lane_stride == 1 && lanes == kWidth) {
    for (int64_t p = 0; p < depth; ++p) {
      for (int i = 0; i < kWidth; ++i) packed[p * kWidth + i] = load(source[p * depth_stride + i]);
    }
    return;
  }
  for (int64_t i = 0; i < lanes; ++i) {
    const auto* lane = source + i * lane_stride;
    for (int64_t p = 0; p < depth; ++p) packed[p * kWidth + i] = load(lane[p * depth_stride]);
  }
}

// Packs `lanes` rows (or columns) panel by panel.
template <int kWidth, class Load>
void pack_as(const void* data, int64_t lane_stride, int64_t depth_stride, int64_t lanes,
             int64_t depth, float* packed) {
  const auto* source = static_cast<const typename Load::Stored*>(data);
  for (int64_t lane = 0; lane < lanes; lane += kWidth) {
    pack_panel<kWidth, Load>(source + lane * lane_stride, lane_stride, depth_stride,
                             std::min<int64_t>(kWidth, lanes - lane), depth, packed + lane * depth);
  }
}

template <int kWidth>
void pack(const MatrixView& view, int64_t lanes, int64_t depth, float* packed) {
  // Here lanes are the rows of `view` and depth its columns.
  switch (view.dtype) {
    case DType::BF16:
      return pack_as<kWidth, LoadBF16>(view.data, view.row_stride, view.col_stride, lanes, depth,
                                       packed);
    case DType::F16:
      return pack_as<kWidth, LoadF16>(view.data, view.row_stride, view.col_stride, lanes, depth,
                                      packed);
    default:
      return pack_as<kWidth, LoadF32>(view.data, view.row_stride, view.col_stride, lanes, depth,
                                      packed);
  }
}

void write_panel(const float* sum, int64_t rows, int64_t cols, float* c, int64_t c_stride,
                 GemmMode mode) {
  for (int64_t r = 0; r < rows; ++r) {
    float* to = c + r * c_stride;
    const float* from_sum = sum + r * kPanelCols;
    if (mode == GemmMode::Store) {
      for (int64_t i = 0; i < cols; ++i) to[i] = from_sum[i];
    } else {
      for (int64_t i = 0; i < cols; ++i) to[i] += from_sum[i];
    }
  }
}

}  // namespace

MatrixView from(const MatrixView& view, int64_t row, int64_t col) {
  const int64_t offset = row * view.row_stride + col * view.col_stride;
  MatrixView moved = view;
  moved.data = static_cast<const char*>(view.data) + offset * dtype_bytes(view.dtype);
  return moved;
}

void gemm(const GemmShape& shape, const MatrixView& a, const MatrixView& b, float* c,
          int64_t c_stride, GemmMode mode, float* scratch) {
  static const MultiplyPanels multiply = choose_multiply_panels();
  float* packed_a = scratch;
  float* packed_b = scratch + kGemmRows * kGemmDepth;
  alignas(64) float sum[kPanelRows * kPanelCols];
  for (int64_t start = 0; start < std::max<int64_t>(shape.depth, 1); start += kGemmDepth) {
    const int64_t depth = std::min(kGemmDepth, shape.depth - start);
    pack<kPanelRows>(from(a, 0, start), shape.rows, depth, packed_a);
    pack<kPanelCols>(transposed(from(b, start, 0)), shape.cols, depth, packed_b);
    const GemmMode block_mode = start == 0 ? mode : GemmMode::Add;
    for (int64_t col = 0; col < shape.cols; col += kPanelCols) {
      for (int64_t row = 0; row < shape.rows; row += kPanelRows) {
        multiply(depth, packed_a + row * depth, packed_b + col * depth, sum);
        write_panel(sum, std::min<int64_t>(kPanelRows, shape.rows - row),
                    std::min<int64_t>(kPanelCols, shape.cols - col), c + row * c_stride + col,
                    c_stride, block_mode);
      }
    }
  }
}

}  // namespace weft
