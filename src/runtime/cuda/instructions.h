// Single instructions available since Ampere: asynchronous copies into shared memory, loads of
// blocks in the order of the matrix units, and their matmuls.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace weft::cuda {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// The dynamic shared memory of the launch.
template <class T>
__device__ T& dynamic_shared() {
  extern __shared__ __align__(128) char dynamic_shared_memory[];
  return *reinterpret_cast<T*>(dynamic_shared_memory);
}

// Two values as one register of the half type, the first in the low half.
__device__ inline uint32_t pack(__nv_bfloat16, float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}
__device__ inline uint32_t pack(__half, float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Copies 16 bytes to shared memory, or writes zeros without reading `from`.
__device__ inline void copy_async(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}

// Waits for all asynchronous copies of this thread.
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Ends a group of asynchronous copies of this thread, and waits for all groups but the last kLater.
__device__ inline void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLater>
__device__ void await_copies_before() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

// Loads four 8 x 8 blocks of half-type elements. Lane 8 b + r passes the address of row r of block
// b; of each block a lane gets columns 2 (lane % 4) and the next one, in row lane / 4.
__device__ inline void load_blocks(uint32_t (&blocks)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
               : "r"(shared_address(row)));
}

// The same, with each block transposed.
__device__ inline void load_blocks_transposed(uint32_t (&blocks)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(blocks[0]), "=r"(blocks[1]), "=r"(blocks[2]), "=r"(blocks[3])
               : "r"(shared_address(row)));
}

// sums [16, 8] += left [16, k] right [k, 8]. With g = lane / 4 and t = lane % 4 a lane holds
//   sums:  rows g and g + 8 (sums 0, 1 and 2, 3), columns 2 t and 2 t + 1;
//   left and right of half types, k = 16: pairs of neighbouring k, of rows (columns) g:
//     left 0: row g, k = 2 t; 1: row g + 8; 2 and 3: k = 2 t + 8; right 0: k = 2 t; 1: 2 t + 8;
//   left and right of f32, k = 8: left 0: row g, k = t; 1: row g + 8; 2 and 3: k = t + 4;
//     right 0: k = t; 1: k = t + 4.
__device__ inline void multiply_add(__nv_bfloat16, float (&sums)[4], const uint32_t (&left)[4],
                                    uint32_t right0, uint32_t right1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
__device__ inline void multiply_add(__half, float (&sums)[4], const uint32_t (&left)[4],
                                    uint32_t right0, uint32_t right1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
__device__ inline void multiply_add(float, float (&sums)[4], const uint32_t (&left)[4],
                                    uint32_t right0, uint32_t right1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

}  // namespace weft::cuda
