#include "runtime/cuda/gemm/gemm.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "base/error.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/gemm/pitched_rows.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"

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

// The shape as it appears in a tuning file.
std::string to_text(const GemmShape& shape) {
  return cat("matmul rows=", shape.rows, " cols=", shape.cols, " depth=", shape.depth,
             " left=", shape.transpose_left ? "t" : "n",
             " right=", shape.transpose_right ? "t" : "n", " bias=", shape.bias ? 1 : 0,
             " in=", shape.tf32 ? "tf32" : dtype_name(shape.in), " out=", dtype_name(shape.out));
}

GemmMemory memory_of(const Launch& launch, size_t first) {
  const bool bias = first == 0 && launch.operands.size() > 2;
  return {.left = launch.operands.at(first + 1).data,
          .right = launch.operands.at(first).data,
          .result = launch.results.at(0).data,
          .bias = bias ? launch.operands[2].data : nullptr,
          .added = first > 0,
          .workspace = launch.workspace};
}

// The memory of the first block of a matmul: its copies come after the library's workspace.
GemmMemory in_copies(const GemmMemory& memory, const GemmCopies& copies) {
  char* scratch = static_cast<char*>(memory.workspace) + kGemmWorkspace;
  const auto place = [&](void* matrix, int64_t bytes) {
    return bytes > 0 ? std::exchange(scratch, scratch + bytes) : matrix;
  };
  GemmMemory at = memory;
  at.left = place(memory.left, copies.left_bytes);
  at.right = place(memory.right, copies.right_bytes);
  at.result = place(memory.result, copies.result_bytes);
  at.bias = place(memory.bias, copies.bias_bytes);
  return at;
}

// An algorithm is plain data, which stays valid within one version of the library.
constexpr size_t kAlgorithmWords = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t);
constexpr size_t kWordDigits = 16;

std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) {
    char digits[kWordDigits + 1];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(word));
    text += digits;
  }
  return text;
}

std::optional<cublasLtMatmulAlgo_t> parse_algorithm(const std::string& text) {
  if (text.size() != kAlgorithmWords * kWordDigits) return std::nullopt;
  if (text.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  cublasLtMatmulAlgo_t algorithm = {};
  for (size_t i = 0; i < kAlgorithmWords; ++i) {
    algorithm.data[i] = std::stoull(text.substr(i * kWordDigits, kWordDigits), nullptr, 16);
  }
  return algorithm;
}

constexpr int kMaxAlgorithms = 32;

// Seconds per matmul by the GPU's clock: the best of several batches.
double row_seconds(cudaStream_t stream, const std::function<void()>& queue) {
  constexpr int kRows = 4;
  constexpr float kRowMilliseconds = 3;
  const CudaEvent start(cudaEventDefault);
  const CudaEvent end(cudaEventDefault);
  const auto row = [&](int count) {
    CUDA_CHECK(cudaEventRecord(start.handle(), stream));
    for (int i = 0; i < count; ++i) queue();
    CUDA_CHECK(cudaEventRecord(end.handle(), stream));
    CUDA_CHECK(cudaEventSynchronize(end.handle()));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.handle(), end.handle()));
    return milliseconds / static_cast<float>(count);
  };
  row(1);  // loads the code
  float best = row(1);
  const int count = std::clamp(static_cast<int>(kRowMilliseconds / best), 1, 100);
  for (int i = 0; i < kRows; ++i) best = std::min(best, row(count));
  return best * 1e-3;
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
    library.load(create_matmul, "cublasLtMatmulDescCreate");
    library.load(destroy_matmul, "cublasLtMatmulDescDestroy");
    library.load(set_matmul, "cublasLtMatmulDescSetAttribute");
    library.load(create_layout, "cublasLtMatrixLayoutCreate");
    library.load(destroy_layout, "cublasLtMatrixLayoutDestroy");
    library.load(create_preference, "cublasLtMatmulPreferenceCreate");
    library.load(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    library.load(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    library.load(choose, "cublasLtMatmulAlgoGetHeuristic");
    library.load(check_algorithm, "cublasLtMatmulAlgoCheck");
    library.load(version, "cublasLtGetVersion");
    library.load(multiply, "cublasLtMatmul");
  }

  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtDestroy)* destroy = nullptr;
  decltype(cublasLtGetStatusString)* status_text = nullptr;
  decltype(cublasLtMatmulDescCreate)* create_matmul = nullptr;
  decltype(cublasLtMatmulDescDestroy)* destroy_matmul = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* set_matmul = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* create_layout = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* destroy_layout = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* create_preference = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* destroy_preference = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* choose = nullptr;
  decltype(cublasLtMatmulAlgoCheck)* check_algorithm = nullptr;
  decltype(cublasLtGetVersion)* version = nullptr;
  decltype(cublasLtMatmul)* multiply = nullptr;
};

struct GemmPlans::GemmPlan {
  explicit GemmPlan(const Functions& functions_) : functions(functions_) {}
  ~GemmPlan() {
    for (cublasLtMatrixLayout_t layout : {left, right, result}) {
      if (layout != nullptr) functions.destroy_layout(layout);
    }
    if (matmul != nullptr) functions.destroy_matmul(matmul);
  }
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  const Functions& functions;
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t left = nullptr;
  cublasLtMatrixLayout_t right = nullptr;
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

GemmPlans::GemmPlans(const Tuning& tuning, bool tf32)
    : tuning_(tuning),
      tf32_(tf32),
      library_("libcublasLt.so.13", "cuBLAS of CUDA 13"),
      functions_(std::make_unique<Functions>(library_)) {
  USER_CHECK(tuning_.empty() || tuning_.library == version(), "device.tuning: made with ",
             tuning_.library, ", this is ", version(), "; measure it again with weft bench tune");
  check(functions_->create(&handle_), "start");
}

std::string GemmPlans::version() const {
  return cat("cuBLASLt ", functions_->version());
}

GemmPlans::~GemmPlans() {
  plans_.clear();
  functions_->destroy(handle_);
}

void GemmPlans::check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(cat("cuda: cuBLASLt: ", what, " failed: ", functions_->status_text(status)));
}

GemmShape GemmPlans::shape_of(const Launch& launch, size_t first) const {
  GemmShape shape = gemm_shape(*launch.call, first);
  shape.tf32 = tf32_ && shape.in == DType::F32;
  return shape;
}

GemmPlans::GemmPlan& GemmPlans::plan(const GemmShape& shape) {
  std::unique_ptr<GemmPlan>& known = plans_[shape];
  if (known) return *known;
  const Functions& f = *functions_;
  auto made = std::make_unique<GemmPlan>(f);
  const auto compute = shape.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(f.create_matmul(&made->matmul, compute, CUDA_R_32F), "descriptor");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    check(f.set_matmul(made->matmul, attribute, &value, sizeof value), "matmul attribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_left ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_right ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (shape.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(shape.in));
  }
  const auto layout = [&](cublasLtMatrixLayout_t& to, DType dtype, const GemmColumns& columns,
                          int64_t pitch = 0) {
    check(f.create_layout(&to, data_type(dtype), u64(columns.length), u64(columns.count),
                          pitch > 0 ? pitch : columns.length),
          "layout");
  };
  layout(made->left, shape.in, left_columns(shape));
  layout(made->right, shape.in, right_columns(shape), shape.right_pitch);
  layout(made->result, shape.out, {shape.rows, shape.cols});

  made->algorithm = chosen(*made, shape);
  known = std::move(made);
  return *known;
}

cublasLtMatmulAlgo_t GemmPlans::chosen(const GemmPlan& gemm, const GemmShape& shape) const {
  const auto choice = tuning_.choices.find(to_text(shape));
  const bool tuned = choice != tuning_.choices.end() && shape.right_pitch == 0;
  if (!tuned) return offered(gemm, 1).front();
  if (shape.bias) {  // the check requires an aligned one; each call sets its own
    const void* aligned = reinterpret_cast<const void*>(uintptr_t{256});
    check(functions_->set_matmul(gemm.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned,
                                 sizeof aligned),
          "bias");
  }
  const std::optional<cublasLtMatmulAlgo_t> algorithm = parse_algorithm(choice->second);
  cublasLtMatmulHeuristicResult_t found = {};
  const bool fits =
      algorithm &&
      functions_->check_algorithm(handle_, gemm.matmul, gemm.left, gemm.right, gemm.result,
                                  gemm.result, &*algorithm, &found) == CUBLAS_STATUS_SUCCESS &&
      found.workspaceSize <= u64(kGemmWorkspace);
  USER_CHECK(fits, "device.tuning: the algorithm of \"", choice->first,
             "\" does not run here; measure it again with weft bench tune");
  return *algorithm;
}

std::vector<cublasLtMatmulAlgo_t> GemmPlans::offered(const GemmPlan& gemm, int most) const {
  const Functions& f = *functions_;
  cublasLtMatmulPreference_t made = nullptr;
  check(f.create_preference(&made), "preference");
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                        decltype(f.destroy_preference)>
      preference(made, f.destroy_preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(f.set_preference(preference.get(), attribute, &value, sizeof value),
          "preference attribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, u64(kGemmWorkspace));
  // Partial sums are combined in f32 in the workspace: they are neither rounded to the result's
  // type nor mixed with the addend.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  check(f.choose(handle_, gemm.matmul, gemm.left, gemm.right, gemm.result, gemm.result,
                 preference.get(), most, results.data(), &found),
        "algorithm selection");
  results.resize(static_cast<size_t>(found));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  CHECK(!algorithms.empty(), "cuBLASLt offers no algorithm");
  return algorithms;
}

void GemmPlans::run(const Launch& launch) {
  matmul(launch, 0);
}

void GemmPlans::run_added(const Launch& launch) {
  matmul(launch, 1);
}

void GemmPlans::matmul(const Launch& launch, size_t first) {
  const GemmShape shape = shape_of(launch, first);
  const GemmMemory memory = memory_of(launch, first);
  if (const std::optional<GemmCopies> copies = gemm_copies(shape)) {
    matmul_of_copies(shape, *copies, memory, stream_of(launch));
  } else {
    multiply(plan(shape), memory, stream_of(launch));
  }
}

void GemmPlans::matmul_of_copies(const GemmShape& shape, const GemmCopies& copies,
                                 const GemmMemory& memory, cudaStream_t stream) {
  const auto copy = [&](void* to, const GemmColumns& filled, const void* from,
                        const GemmColumns& columns, int64_t pitch) {
    copy_rows({.to = to,
               .to_rows = filled.count,
               .to_pitch = filled.length,
               .from = from,
               .from_pitch = pitch,
               .rows = columns.count,
               .length = columns.length},
              stream);
  };
  GemmMemory at = in_copies(memory, copies);
  GemmShape block = copies.shape;
  if (copies.left_bytes > 0) {
    const GemmColumns columns = left_columns(shape);
    copy(at.left, left_columns(block), memory.left, columns, columns.length);
  }
  if (copies.bias_bytes > 0) copy(at.bias, {block.rows, 1}, memory.bias, {shape.rows, 1}, 0);
  for (int64_t start = 0; start < shape.cols; start += block.cols) {
    GemmShape part = shape;  // restricted to the columns of the block
    part.cols = block.cols = block_columns(shape, copies, start);
    const GemmColumns columns = right_columns(part);
    const int64_t pitch = right_columns(shape).length;
    void* right = static_cast<uint16_t*>(memory.right) +
                  (shape.transpose_right ? start : start * shape.depth);
    const int64_t used_pitch = copies.right_bytes > 0 ? filled_up(columns.length) : pitch;
    block.right_pitch = used_pitch == right_columns(block).length ? 0 : used_pitch;
    if (copies.right_bytes > 0) {
      copy(at.right, {used_pitch, columns.count}, right, columns, pitch);
    } else {
      at.right = right;
    }
    const int64_t halves = dtype_bytes(shape.out) / 2;  // 2-byte units per element of the result
    void* result = static_cast<uint16_t*>(memory.result) + halves * start * shape.rows;
    const GemmColumns dense = {halves * shape.rows, block.cols};
    const GemmColumns filled = {halves * block.rows, block.cols};
    const bool copied = copies.result_bytes > 0;
    if (!copied) at.result = result;
    if (copied && memory.added) copy(at.result, filled, result, dense, dense.length);
    multiply(plan(block), at, stream);
    if (copied) copy(result, dense, at.result, dense, filled.length);
  }
}

void GemmPlans::multiply(GemmPlan& gemm, const GemmMemory& memory, cudaStream_t stream) {
  const Functions& f = *functions_;
  if (memory.bias != nullptr) {
    check(f.set_matmul(gemm.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &memory.bias,
                       sizeof memory.bias),
          "bias");
  }
  const float one = 1;
  const float beta = memory.added ? 1.0f : 0.0f;
  check(f.multiply(handle_, gemm.matmul, &one, memory.left, gemm.left, memory.right, gemm.right,
                   &beta, memory.result, gemm.result, memory.result, gemm.result, &gemm.algorithm,
                   memory.workspace, static_cast<size_t>(kGemmWorkspace), stream),
        "matmul");
}

TunedCall GemmPlans::tune(const Launch& launch, size_t first) {
  GemmShape shape = shape_of(launch, first);
  GemmMemory memory = memory_of(launch, first);
  const cudaStream_t stream = stream_of(launch);
  if (const std::optional<GemmCopies> copies = gemm_copies(shape)) {
    matmul_of_copies(shape, *copies, memory, stream);  // something to multiply
    memory = in_copies(memory, *copies);
    const int64_t cols = block_columns(shape, *copies, 0);
    shape = copies->shape;
    shape.cols = cols;
  }
  GemmPlan& gemm = plan(shape);
  TunedCall tuned{.library = version(), .call = to_text(shape), .choice = {}};
  for (const cublasLtMatmulAlgo_t& algorithm : offered(gemm, kMaxAlgorithms)) {
    gemm.algorithm = algorithm;
    const double seconds = row_seconds(stream, [&] { multiply(gemm, memory, stream); });
    if (tuned.choice.empty()) tuned.first_seconds = seconds;
    if (!tuned.choice.empty() && seconds >= tuned.seconds) continue;
    tuned.seconds = seconds;
    tuned.choice = to_text(algorithm);
  }
  return tuned;
}

std::optional<TunedCall> tune_gemm(const Kernel& kernel, const Launch& launch) {
  const bool added = kernel.launch == launch_cublaslt_matmul_add ||
                     kernel.launch == launch_cublaslt_matmul_accumulate;
  if (!added && kernel.launch != launch_cublaslt_matmul) return std::nullopt;
  return cuda_stream(launch).gemm().tune(launch, added ? 1 : 0);
}

void launch_cublaslt_matmul(const Launch& launch) {
  cuda_stream(launch).gemm().run(launch);
}

void launch_cublaslt_matmul_add(const Launch& launch) {
  cuda_stream(launch).gemm().run_added(launch);
}

// Adding to zero gives the same bits as the matmul alone: no sum that starts at zero is -0.
void launch_cublaslt_matmul_accumulate(const Launch& launch) {
  launch_clear_at_start(launch.results.at(0), launch.operands.at(3), launch);
  cuda_stream(launch).gemm().run_added(launch);
}

}  // namespace weft::cuda
