// Matrix products by cuBLASLt. Every shape has one algorithm, so the same call has the same bits on
// every run: that of the tuning, or else the first that the library's heuristic offers within the
// declared workspace. f32 is multiplied as f32, or as tf32 where that is asked for.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/gemm_shape.h"
#include "runtime/cuda/library.h"
#include "runtime/device.h"

namespace weft::cuda {

// What a product reads and writes.
struct GemmMemory {
  void* left = nullptr;
  void* right = nullptr;
  void* result = nullptr;
  void* bias = nullptr;  // nullptr: none
  bool added = false;    // to what lies at the result
  void* workspace = nullptr;
};

class GemmPlans {
 public:
  // `tuning` outlives the plans. Throws UserError when it was made with another cuBLASLt.
  GemmPlans(const Tuning& tuning, bool tf32);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  // Queues the matmul of the launch.
  void run(const Launch& launch);

  // Queues the product of operands 1 and 2, added to what lies at the result. Its algorithm is that
  // of the product alone, so the bits are those of a product and a sum.
  void run_added(const Launch& launch);

  // Measures all algorithms that are offered for the product of operands `first` and the next one,
  // or for its first block.
  TunedCall tune(const Launch& launch, size_t first);

 private:
  struct Functions;
  struct GemmPlan;
  GemmPlan& plan(const GemmShape& shape);
  // The product of operands `first` and the next one.
  GemmShape shape_of(const Launch& launch, size_t first) const;
  std::string version() const;
  // The algorithms offered for a product, the library's first choice first; `most` at most.
  std::vector<cublasLtMatmulAlgo_t> offered(const GemmPlan& gemm, int most) const;
  // The algorithm that the tuning has for the shape; throws UserError when it does not fit.
  cublasLtMatmulAlgo_t chosen(const GemmPlan& gemm, const GemmShape& shape) const;
  // The product of operands `first` and the next; where operand 0 is no factor, added to the
  // result.
  void product(const Launch& launch, size_t first);
  // The same in blocks, on copies of what lies badly.
  void product_of_copies(const GemmShape& shape, const GemmCopies& copies, const GemmMemory& memory,
                         cudaStream_t stream);
  void multiply(GemmPlan& gemm, const GemmMemory& memory, cudaStream_t stream);
  void check(cublasStatus_t status, const char* what) const;

  const Tuning& tuning_;
  const bool tf32_;
  Library library_;
  std::unique_ptr<Functions> functions_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmShape, std::unique_ptr<GemmPlan>> plans_;
};

// Measures the product of a launch by cuBLASLt; nullopt for other kernels.
std::optional<TunedCall> tune_gemm(const Kernel& kernel, const Launch& launch);

}  // namespace weft::cuda
