// Rows of half-type elements, copied between tensors whose rows lie differently far apart.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weft::cuda {

// Pitches are elements from row to row.
struct RowCopy {
  void* to = nullptr;
  int64_t to_pitch = 0;
  const void* from = nullptr;
  int64_t from_pitch = 0;
  int64_t rows = 0;
  int64_t length = 0;  // elements of a row
};

void copy_rows(const RowCopy& copy, cudaStream_t stream);

}  // namespace weft::cuda
