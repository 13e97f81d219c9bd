// Matrix products by cuBLASLt. For every shape the first algorithm that its heuristic offers within
// the declared workspace is kept, so the same call has the same bits on every run. f32 is computed
// in f32, not in tf32.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>

#include "plan/kernel.h"
#include "runtime/cuda/library.h"

namespace weft::cuda {

// One product as cuBLASLt sees it: column-major, so that our row-major C is its transpose.
struct GemmShape {
  int64_t rows = 0;  // of the column-major result: the last dim of ours
  int64_t cols = 0;
  int64_t depth = 0;
  bool transpose_left = false;
  bool transpose_right = false;
  bool bias = false;
  DType in = DType::F32;
  DType out = DType::F32;

  auto operator<=>(const GemmShape&) const = default;  // NOLINT(modernize-use-nullptr): not one
};

class GemmPlans {
 public:
  GemmPlans();
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  // Queues the matmul of the launch.
  void run(const Launch& launch);

  // Queues the product of operands 1 and 2, added to what lies at the result. Its algorithm is that
  // of the product alone, so the bits are those of a product and a sum.
  void run_added(const Launch& launch);

 private:
  struct Functions;
  struct GemmPlan;
  GemmPlan& plan(const GemmShape& shape);
  // result = the product of operands `first` and the next + beta * result.
  void multiply(GemmPlan& gemm, const Launch& launch, size_t first, float beta);
  void check(cublasStatus_t status, const char* what) const;

  Library library_;
  std::unique_ptr<Functions> functions_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmShape, std::unique_ptr<GemmPlan>> plans_;
};

}  // namespace weft::cuda
