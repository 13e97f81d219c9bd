// Single instructions used by Hopper kernels: barriers that count bytes, TMA copies, and warpgroup
// matmuls. A tile lies in shared memory as panels of 64 half-type columns, 128 bytes per row. The
// 16-byte chunks are permuted within each 8 rows as the TMA does it ("128-byte swizzle");
// panels start at multiples of 1024 bytes.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "runtime/cuda/instructions.h"

namespace weft::cuda::hopper {

inline constexpr int kPanelColumns = 64;
inline constexpr int kRowBytes = 128;
inline constexpr int kEightRows = 8 * kRowBytes;

// Byte offset of a 16-byte chunk of a row within its panel.
__device__ inline uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * kRowBytes + ((chunk ^ (row % 8)) << 4);
}

__device__ inline void init_barrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}

__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Arrives, and makes the barrier wait for this many copied bytes as well.
__device__ inline void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ inline void await(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Copies a box of a tensor, or bytes, into shared memory; completes on the barrier.
__device__ inline void copy_box(void* to, const CUtensorMap& map, int column, int row, int sample,
                                uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(sample), "r"(shared_address(barrier))
      : "memory");
}

__device__ inline void copy_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Copies out of shared memory; the same thread waits for completion.
__device__ inline void write_bytes(void* to, const void* from, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}

// Adds f32 elements to those in memory.
__device__ inline void add_floats(float* to, const float* from, uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}

// Waits until the shared memory has been read.
__device__ inline void await_reads() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Waits until the results are in memory, visible to ordinary accesses too.
__device__ inline void await_writes() {
  asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async;" ::: "memory");
}

// A panel whose rows run along the M or N dimension; its 64 columns are the K dimension.
__device__ inline uint64_t rows_operand(const void* panel) {
  return (static_cast<uint64_t>(shared_address(panel)) >> 4) | (uint64_t{1} << 16) |
         (uint64_t{kEightRows >> 4} << 32) | (uint64_t{1} << 62);
}

// A panel whose rows are the K dimension; further panels along M or N are `stride` bytes apart.
__device__ inline uint64_t columns_operand(const void* panel, uint32_t stride = kEightRows) {
  return (static_cast<uint64_t>(shared_address(panel)) >> 4) |
         (static_cast<uint64_t>(stride >> 4) << 16) | (uint64_t{kEightRows >> 4} << 32) |
         (uint64_t{1} << 62);
}

// Advances by sixteen elements along K.
inline constexpr uint64_t kNextInRow = 32 >> 4;
inline constexpr uint64_t kNextRows = (2 * kEightRows) >> 4;

__device__ inline void start_matmuls() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void commit_matmuls() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending groups of matmuls are unfinished.
template <int kPending>
__device__ void await_matmuls() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from using accumulators on the wrong side of a wait.
template <int kCount>
__device__ void pin(float (&sum)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

#define WEFT_SUMS8(d, i)                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define WEFT_SUMS32(d, i) \
  WEFT_SUMS8(d, i), WEFT_SUMS8(d, i + 8), WEFT_SUMS8(d, i + 16), WEFT_SUMS8(d, i + 24)
#define WEFT_NAMES32                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WEFT_NAMES64                                                                        \
  WEFT_NAMES32                                                                              \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Matmuls of one type: 64 x 64 (32 sums per thread) or 64 x 128 (64 sums), 16 deep. `keep` false
// starts from zero. The left operand lies in shared memory or, as four registers, in the layout of
// the sums.
#define WEFT_MATMULS(TYPE, NAME)                                                                \
  template <int kByColumns>                                                                     \
  __device__ inline void multiply(TYPE, float(&d)[32], uint64_t a, uint64_t b, bool keep) {     \
    asm volatile(                                                                               \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                            \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" WEFT_NAMES32           \
        "}, %32, %33, p, 1, 1, %35, %36;\n}\n"                                                  \
        : WEFT_SUMS32(d, 0)                                                                     \
        : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(kByColumns), "n"(kByColumns));       \
  }                                                                                             \
  template <int kByColumns>                                                                     \
  __device__ inline void multiply(TYPE, float(&d)[64], uint64_t a, uint64_t b, bool keep) {     \
    asm volatile(                                                                               \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                            \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " {" WEFT_NAMES64          \
        "}, %64, %65, p, 1, 1, %67, %68;\n}\n"                                                  \
        : WEFT_SUMS32(d, 0), WEFT_SUMS32(d, 32)                                                 \
        : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(kByColumns), "n"(kByColumns));       \
  }                                                                                             \
  __device__ inline void multiply(TYPE, float(&d)[32], const uint32_t* a, uint64_t b) {         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" WEFT_NAMES32  \
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"                                  \
                 : WEFT_SUMS32(d, 0)                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                         \
  }                                                                                             \
  __device__ inline void multiply(TYPE, float(&d)[64], const uint32_t* a, uint64_t b) {         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " {" WEFT_NAMES64 \
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"                                  \
                 : WEFT_SUMS32(d, 0), WEFT_SUMS32(d, 32)                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                         \
  }

WEFT_MATMULS(__nv_bfloat16, "bf16")
WEFT_MATMULS(__half, "f16")

#undef WEFT_MATMULS
#undef WEFT_NAMES64
#undef WEFT_NAMES32
#undef WEFT_SUMS32
#undef WEFT_SUMS8

// Stores four 8 x 8 blocks of half-type elements; each lane passes the address of one row.
__device__ inline void store_blocks(uint32_t address, const uint32_t* blocks) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(blocks[0]), "r"(blocks[1]), "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}

// Makes ordinary stores to shared memory visible to matmuls and copies; call before a barrier.
__device__ inline void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A named barrier for some warps of a block; 0 is __syncthreads.
template <int kThreads>
__device__ void sync_barrier(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// Arrives at it without waiting.
template <int kThreads>
__device__ void arrive_at(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

}  // namespace weft::cuda::hopper
