// How one instruction set multiplies packed panels. Each variant is compiled with its own flags, so
// it shares only these plain types with the rest of the program: if both sides used an inline
// function, the linker could keep the version that the machine cannot run.
#pragma once

#include <cstdint>

namespace weft {

enum class GemmElement { F32, BF16, F16 };

// Lanes are rows of a left factor or columns of a right one; lane i at depth p lies at element
// i * lane_stride + p * depth_stride. One of the strides is 1.
struct PackSource {
  const void* data = nullptr;
  GemmElement element = GemmElement::F32;
  int64_t lane_stride = 0;
  int64_t depth_stride = 0;
  int64_t lanes = 0;
  int64_t depth = 0;
};

// Floats from row to row of a tile: a small matrix in a thread's memory that can be a factor
// without being packed.
inline constexpr int64_t kTileStride = 64;

// c[rows][cols] = or += the matmul of one panel of each factor.
struct PanelMatmul {
  int64_t depth = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  int64_t a_stride = 0;  // floats from one step of the depth to the next
  int64_t b_stride = 0;
  float* c = nullptr;
  int64_t c_stride = 0;
  int64_t rows = 0;  // at most panel_rows
  int64_t cols = 0;  // at most panel_cols
  bool add = false;
};

struct GemmVariant {
  const char* name = nullptr;
  int64_t panel_rows = 0;
  int64_t panel_cols = 0;
  int64_t terms = 1;  // of the depth that share a float of a packed panel
  int64_t step = 1;   // lanes of a panel are padded to a multiple of this many floats
  // Packs lanes into consecutive panels of panel_rows or panel_cols lanes, each padded with zeros.
  void (*pack_rows)(const PackSource& source, float* packed) = nullptr;
  void (*pack_cols)(const PackSource& source, float* packed) = nullptr;
  void (*multiply)(const PanelMatmul& matmul) = nullptr;
  // The same with rows of a tile as the left factor; only where a float holds one term.
  void (*multiply_tile)(const PanelMatmul& matmul) = nullptr;
};

// Each term is added by one fused multiply-add, in order of depth; without that instruction, by a
// multiply and an add. The bf16 variants take bf16 on both sides; AVX-512 adds two terms at a time,
// AMX the sums of 16 even and of 16 odd terms.
const GemmVariant& gemm_portable();
#if defined(__x86_64__)
const GemmVariant& gemm_avx2();
const GemmVariant& gemm_avx512();
const GemmVariant& gemm_avx512_bf16();
const GemmVariant& gemm_amx();
#endif

}  // namespace weft
