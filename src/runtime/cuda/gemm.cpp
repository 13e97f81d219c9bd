#include "runtime/cuda/gemm.h"

#include "base/error.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/stream.h"

namespace weft::cuda {

namespace {

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return CUDA_R_32F;
    case DType::BF16:
      return CUDA_R_16BF;
    case DType::F16:
      return CUDA_R_16F;
    default:
      CHECK(false, "no matmul of ", dtype_name(dtype));
  }
}

// Our C = A B, row-major, is C^T = B^T A^T, column-major: B stands left. The factors are operands
// `first` and the one after it.
GemmShape shape_of(const Launch& launch, size_t first) {
  const Call& call = *launch.call;
  const TensorType& a = call.type(first);
  const TensorType& b = call.type(first + 1);
  GemmShape shape;
  shape.in = a.dtype;
  shape.out = call.results.at(0).dtype;
  shape.bias = first == 0 && call.operands.size() > 2;
  const int64_t inner = a.shape.back();
  const int64_t leading = a.elements() / inner;
  if (call.bool_attr("ta")) {  // A [depth, cols], B [depth, rows]
    shape.rows = b.shape.back();
    shape.cols = inner;
    shape.depth = leading;
    shape.transpose_right = true;
  } else {
    shape.cols = leading;
    shape.depth = inner;
    shape.transpose_left = call.bool_attr("tb");
    shape.rows = b.shape.at(shape.transpose_left ? 0 : 1);
  }
  return shape;
}

uint64_t u64(int64_t value) {
  return static_cast<uint64_t>(value);
}

}  // namespace

struct GemmPlans::Functions {
  explicit Functions(const Library& library) {
    library.load(create, "cublasLtCreate");
    library.load(destroy, "cublasLtDestroy");
    library.load(status_text, "cublasLtGetStatusString");
    library.load(create_product, "cublasLtMatmulDescCreate");
    library.load(destroy_product, "cublasLtMatmulDescDestroy");
    library.load(set_product, "cublasLtMatmulDescSetAttribute");
    library.load(create_layout, "cublasLtMatrixLayoutCreate");
    library.load(destroy_layout, "cublasLtMatrixLayoutDestroy");
    library.load(create_preference, "cublasLtMatmulPreferenceCreate");
    library.load(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    library.load(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    library.load(choose, "cublasLtMatmulAlgoGetHeuristic");
    library.load(multiply, "cublasLtMatmul");
  }

  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtDestroy)* destroy = nullptr;
  decltype(cublasLtGetStatusString)* status_text = nullptr;
  decltype(cublasLtMatmulDescCreate)* create_product = nullptr;
  decltype(cublasLtMatmulDescDestroy)* destroy_product = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* set_product = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* create_layout = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* destroy_layout = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* create_preference = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* destroy_preference = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* choose = nullptr;
  decltype(cublasLtMatmul)* multiply = nullptr;
};

struct GemmPlans::GemmPlan {
  explicit GemmPlan(const Functions& functions_) : functions(functions_) {}
  ~GemmPlan() {
    for (cublasLtMatrixLayout_t layout : {left, right, result}) {
      if (layout != nullptr) functions.destroy_layout(layout);
    }
    if (product != nullptr) functions.destroy_product(product);
  }
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  const Functions& functions;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t left = nullptr;
  cublasLtMatrixLayout_t right = nullptr;
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

GemmPlans::GemmPlans()
    : library_("libcublasLt.so.13", "cuBLAS of CUDA 13"),
      functions_(std::make_unique<Functions>(library_)) {
  check(functions_->create(&handle_), "start");
}

GemmPlans::~GemmPlans() {
  plans_.clear();
  functions_->destroy(handle_);
}

void GemmPlans::check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(cat("cuda: cuBLASLt: ", what, " failed: ", functions_->status_text(status)));
}

GemmPlans::GemmPlan& GemmPlans::plan(const GemmShape& shape) {
  std::unique_ptr<GemmPlan>& known = plans_[shape];
  if (known) return *known;
  const Functions& f = *functions_;
  auto made = std::make_unique<GemmPlan>(f);
  check(f.create_product(&made->product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    check(f.set_product(made->product, attribute, &value, sizeof value), "attribute of a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_left ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_right ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (shape.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(shape.in));
  }
  const auto layout = [&](cublasLtMatrixLayout_t& to, DType dtype, int64_t rows, int64_t cols) {
    check(f.create_layout(&to, data_type(dtype), u64(rows), u64(cols), rows), "layout");
  };
  const int64_t m = shape.rows;
  const int64_t n = shape.cols;
  const int64_t k = shape.depth;
  layout(made->left, shape.in, shape.transpose_left ? k : m, shape.transpose_left ? m : k);
  layout(made->right, shape.in, shape.transpose_right ? n : k, shape.transpose_right ? k : n);
  layout(made->result, shape.out, m, n);

  cublasLtMatmulPreference_t preference = nullptr;
  check(f.create_preference(&preference), "preference");
  const uint64_t workspace = u64(kGemmWorkspace);
  f.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                   sizeof workspace);
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  const cublasStatus_t status = f.choose(handle_, made->product, made->left, made->right,
                                         made->result, made->result, preference, 1, &best, &found);
  f.destroy_preference(preference);
  check(status, "choice of an algorithm");
  CHECK(found > 0, "cuBLASLt offers no algorithm");
  made->algorithm = best.algo;
  known = std::move(made);
  return *known;
}

void GemmPlans::run(const Launch& launch) {
  const GemmShape shape = shape_of(launch, 0);
  GemmPlan& gemm = plan(shape);
  if (shape.bias) {
    const void* bias = launch.operands.at(2).data;
    check(functions_->set_product(gemm.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                  sizeof bias),
          "bias");
  }
  multiply(gemm, launch, 0, 0);
}

void GemmPlans::run_added(const Launch& launch) {
  multiply(plan(shape_of(launch, 1)), launch, 1, 1);
}

void GemmPlans::multiply(GemmPlan& gemm, const Launch& launch, size_t first, float beta) {
  const float one = 1;
  void* result = launch.results.at(0).data;
  check(functions_->multiply(handle_, gemm.product, &one, launch.operands.at(first + 1).data,
                             gemm.left, launch.operands.at(first).data, gemm.right, &beta, result,
                             gemm.result, result, gemm.result, &gemm.algorithm, launch.workspace,
                             static_cast<size_t>(launch.workspace_bytes), stream_of(launch)),
        "product");
}

void launch_cublaslt_matmul(const Launch& launch) {
  cuda_stream(launch).gemm().run(launch);
}

void launch_cublaslt_matmul_add(const Launch& launch) {
  cuda_stream(launch).gemm().run_added(launch);
}

// Zero and the product are the product: no element of a sum that starts at zero is -0.
void launch_cublaslt_matmul_accumulate(const Launch& launch) {
  launch_clear_at_start(launch.results.at(0), launch.operands.at(3), launch);
  cuda_stream(launch).gemm().run_added(launch);
}

}  // namespace weft::cuda
