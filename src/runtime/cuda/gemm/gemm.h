// Matmuls by cuBLASLt. Every shape has one algorithm, so the same call has the same bits on every
// run. It comes from the tuning file, or else is the first one offered by the library's heuristic
// within the declared workspace. f32 is multiplied as f32, or as tf32 where the config asks for it.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/device/library.h"
#include "runtime/cuda/gemm/gemm_shape.h"
#include "runtime/device.h"

namespace weft::cuda {

// The buffers of a matmul.
struct GemmMemory {
  void* left = nullptr;
  void* right = nullptr;
  void* result = nullptr;
  void* bias = nullptr;  // nullptr: none
  bool added = false;    // to the contents of the result
  void* workspace = nullptr;
};

class GemmPlans {
 public:
  // `tuning` outlives the plans. Throws UserError when it was made with another version of
  // cuBLASLt.
  GemmPlans(const Tuning& tuning, bool tf32);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  // Queues the matmul of the launch.
  void run(const Launch& launch);

  // Queues the matmul of operands 1 and 2, added to the contents of the result. It uses the
  // algorithm of the plain matmul, so the bits are those of a matmul followed by an add.
  void run_added(const Launch& launch);

  // Measures all algorithms offered for the matmul of operands `first` and `first` + 1, or for its
  // first block.
  TunedCall tune(const Launch& launch, size_t first);

 private:
  struct Functions;
  struct GemmPlan;
  GemmPlan& plan(const GemmShape& shape);
  // The matmul of operands `first` and `first` + 1.
  GemmShape shape_of(const Launch& launch, size_t first) const;
  std::string version() const;
  // The algorithms offered for a matmul, best first by the library's heuristic; at most `most`.
  std::vector<cublasLtMatmulAlgo_t> offered(const GemmPlan& gemm, int most) const;
  // The algorithm in the tuning file for the shape; throws UserError when it does not fit.
  cublasLtMatmulAlgo_t chosen(const GemmPlan& gemm, const GemmShape& shape) const;
  // The matmul of operands `first` and `first` + 1; added to the result if operand 0 is not a
  // factor.
  void matmul(const Launch& launch, size_t first);
  // The same in blocks, on aligned copies of badly aligned matrices.
  void matmul_of_copies(const GemmShape& shape, const GemmCopies& copies, const GemmMemory& memory,
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

// Measures the matmul of a launch by cuBLASLt; nullopt for other kernels.
std::optional<TunedCall> tune_gemm(const Kernel& kernel, const Launch& launch);

}  // namespace weft::cuda
