// Arithmetic of the collectives: sums over ranks as a fixed tree in f32, copies that bypass the
// caches, and conversion. Blocked, so that it runs at memory bandwidth.
#pragma once

#include <cstdint>
#include <span>

#include "plan/kernel.h"

namespace weft {

// A typed pointer to elements in memory.
struct Run {
  void* data = nullptr;
  DType dtype = DType::F32;
};

// to[i] = tree sum of sources[k][i] over k, for i < n. All sources have one dtype; floating-point
// sums are computed in f32 and rounded once, i64 is exact. `to` may be one of the sources.
void tree_sum(std::span<const void* const> sources, DType dtype, int64_t n, const Run& to);

// Copies n elements, converting between f32, bf16 and f16 where the types differ.
void convert(const Run& from, int64_t n, const Run& to);

// Copies bytes, bypassing the caches when there are many of them.
void copy_bytes(void* to, const void* from, int64_t bytes);

}  // namespace weft
