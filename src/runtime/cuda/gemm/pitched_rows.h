// Copies rows of 2-byte elements between matrices with different pitches.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weft::cuda {

// Pitches are elements from row to row. All to_rows x to_pitch elements are written, with zeros
// where `from` has none.
struct RowCopy {
  void* to = nullptr;  // aligned to 16 bytes
  int64_t to_rows = 0;
  int64_t to_pitch = 0;
  const void* from = nullptr;
  int64_t from_pitch = 0;
  int64_t rows = 0;    // of `from`
  int64_t length = 0;  // elements per row
};

void copy_rows(const RowCopy& copy, cudaStream_t stream);

}  // namespace weft::cuda
