#include "runtime/cuda/attention/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace weft::cuda {

namespace {

constexpr int64_t kTensorAlignment = 16;
constexpr int64_t kMaxConfigs = 16;

}  // namespace

struct Cudnn::Functions {
  explicit Functions(const Library& library) {
    library.load(create, "cudnnCreate");
    library.load(destroy, "cudnnDestroy");
    library.load(set_stream, "cudnnSetStream");
    library.load(status_text, "cudnnGetErrorString");
    library.load(last_error, "cudnnGetLastErrorString");
    library.load(create_descriptor, "cudnnBackendCreateDescriptor");
    library.load(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    library.load(set_attribute, "cudnnBackendSetAttribute");
    library.load(get_attribute, "cudnnBackendGetAttribute");
    library.load(finalize, "cudnnBackendFinalize");
    library.load(execute, "cudnnBackendExecute");
  }

  decltype(cudnnCreate)* create = nullptr;
  decltype(cudnnDestroy)* destroy = nullptr;
  decltype(cudnnSetStream)* set_stream = nullptr;
  decltype(cudnnGetErrorString)* status_text = nullptr;
  decltype(cudnnGetLastErrorString)* last_error = nullptr;
  decltype(cudnnBackendCreateDescriptor)* create_descriptor = nullptr;
  decltype(cudnnBackendDestroyDescriptor)* destroy_descriptor = nullptr;
  decltype(cudnnBackendSetAttribute)* set_attribute = nullptr;
  decltype(cudnnBackendGetAttribute)* get_attribute = nullptr;
  decltype(cudnnBackendFinalize)* finalize = nullptr;
  decltype(cudnnBackendExecute)* execute = nullptr;
};

Cudnn::Cudnn(cudaStream_t stream)
    : library_("libcudnn.so.9", "cuDNN 9"), functions_(std::make_unique<Functions>(library_)) {
  check(functions_->create(&handle_), "start");
  check(functions_->set_stream(handle_, stream), "stream selection");
}

Cudnn::~Cudnn() {
  functions_->destroy(handle_);
}

void Cudnn::check(cudnnStatus_t status, const char* what) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char reason[512] = {};
  functions_->last_error(reason, sizeof reason);
  throw DeviceError(cat("cuda: cuDNN: ", what, " failed: ", functions_->status_text(status),
                        reason[0] != 0 ? cat(" (", reason, ")") : ""));
}

Descriptor::Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type) : cudnn_(cudnn) {
  cudnn_.check(cudnn_.functions().create_descriptor(type, &descriptor_), "descriptor");
}

Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) cudnn_.functions().destroy_descriptor(descriptor_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : cudnn_(other.cudnn_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     int64_t count, const void* values) {
  cudnn_.check(cudnn_.functions().set_attribute(descriptor_, name, type, count, values),
               "attribute");
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, int64_t value) {
  set(name, CUDNN_TYPE_INT64, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, bool value) {
  set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  const cudnnBackendDescriptor_t descriptor = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
}

void Descriptor::finalize() {
  cudnn_.check(cudnn_.functions().finalize(descriptor_), "descriptor finalization");
}

bool Descriptor::try_finalize() {
  return cudnn_.functions().finalize(descriptor_) == CUDNN_STATUS_SUCCESS;
}

CudnnPlan::CudnnPlan(const Cudnn& cudnn, Descriptor plan, std::map<TensorId, float> scalars)
    : cudnn_(cudnn), plan_(std::move(plan)), scalars_(std::move(scalars)) {
  int64_t count = 0;
  cudnn_.check(
      cudnn_.functions().get_attribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &count, &workspace_bytes_),
      "workspace query");
}

void CudnnPlan::run(const std::map<TensorId, void*>& tensors, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [id, pointer] : tensors) {
    ids.push_back(id);
    pointers.push_back(pointer);
  }
  for (const auto& [id, value] : scalars_) {
    ids.push_back(id);
    pointers.push_back(const_cast<float*>(&value));
  }
  Descriptor pack(cudnn_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<int64_t>(ids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  cudnn_.check(cudnn_.functions().execute(cudnn_.handle(), plan_.get(), pack.get()), "attention");
}

TensorId CudnnGraph::add_tensor(cudnnDataType_t type, const Axes& dims, const Axes& strides,
                                TensorKind kind) {
  const auto id = static_cast<int64_t>(tensors_.size()) + 1;
  Descriptor tensor(cudnn_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensorAlignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, kind == TensorKind::Between);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, kind == TensorKind::Scalar);
  tensor.finalize();
  tensors_.push_back(std::move(tensor));
  return id;
}

TensorId CudnnGraph::bound(cudnnDataType_t type, const Axes& dims, const Axes& strides) {
  return add_tensor(type, dims, strides, TensorKind::Bound);
}

TensorId CudnnGraph::between(cudnnDataType_t type, const Axes& dims, const Axes& strides) {
  return add_tensor(type, dims, strides, TensorKind::Between);
}

TensorId CudnnGraph::scalar(float value) {
  const TensorId id = add_tensor(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, TensorKind::Scalar);
  scalars_[id] = value;
  return id;
}

void CudnnGraph::add_operation(
    cudnnBackendDescriptorType_t type,
    std::span<const std::pair<cudnnBackendAttributeName_t, TensorId>> tensors,
    cudnnBackendAttributeName_t what_name, const Descriptor* what) {
  Descriptor operation(cudnn_, type);
  if (what != nullptr) operation.set(what_name, *what);
  for (const auto& [name, id] : tensors) {
    operation.set(name, tensors_.at(static_cast<size_t>(id - 1)));
  }
  operation.finalize();
  operations_.push_back(std::move(operation));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, std::span<const TensorId> x, TensorId y,
                           cudnnDataType_t compute) {
  Descriptor what(cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
  what.finalize();
  parts_.push_back(std::move(what));
  constexpr cudnnBackendAttributeName_t kNames[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                    CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                    CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  std::vector<std::pair<cudnnBackendAttributeName_t, TensorId>> tensors;
  for (size_t i = 0; i < x.size(); ++i) tensors.emplace_back(kNames[i], x[i]);
  tensors.emplace_back(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, tensors,
                CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &parts_.back());
}

void CudnnGraph::index(TensorId like, int64_t axis, TensorId y) {
  Descriptor what(cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
  what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  what.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  what.finalize();
  parts_.push_back(std::move(what));
  const std::pair<cudnnBackendAttributeName_t, TensorId> tensors[] = {
      {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}};
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, tensors,
                CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &parts_.back());
}

void CudnnGraph::matmul(TensorId a, TensorId b, TensorId c) {
  Descriptor what(cudnn_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  what.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  what.finalize();
  parts_.push_back(std::move(what));
  const std::pair<cudnnBackendAttributeName_t, TensorId> tensors[] = {
      {CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
      {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
      {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c}};
  add_operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, tensors,
                CUDNN_ATTR_OPERATION_MATMUL_DESC, &parts_.back());
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t mode, TensorId x, TensorId y) {
  Descriptor what(cudnn_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  what.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  what.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  what.finalize();
  parts_.push_back(std::move(what));
  const std::pair<cudnnBackendAttributeName_t, TensorId> tensors[] = {
      {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}};
  add_operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, tensors,
                CUDNN_ATTR_OPERATION_REDUCTION_DESC, &parts_.back());
}

void CudnnGraph::view(TensorId x, TensorId y) {
  const std::pair<cudnnBackendAttributeName_t, TensorId> tensors[] = {
      {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}};
  add_operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, tensors, {}, nullptr);
}

Descriptor CudnnGraph::make_graph() const {
  Descriptor graph(cudnn_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Descriptor& operation : operations_) operations.push_back(operation.get());
  const cudnnHandle_t handle = cudnn_.handle();
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(operations.size()), operations.data());
  graph.finalize();
  return graph;
}

std::vector<Descriptor> CudnnGraph::offered_configs(const Descriptor& graph) const {
  Descriptor heuristic(cudnn_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristic.finalize();
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < kMaxConfigs; ++i) {
    configs.emplace_back(cudnn_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configs.back().get());
  }
  int64_t found = 0;
  cudnn_.check(cudnn_.functions().get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, kMaxConfigs, &found,
                                                raw.data()),
               "engine selection");
  while (static_cast<int64_t>(configs.size()) > found) configs.pop_back();
  return configs;
}

bool CudnnGraph::has_fixed_order(const Descriptor& config) const {
  const Descriptor engine(cudnn_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0;
  cudnn_.check(cudnn_.functions().get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
               "engine query");
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const auto most = static_cast<int64_t>(notes.size());
  cudnn_.check(
      cudnn_.functions().get_attribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, most, &count, notes.data()),
      "engine notes query");
  const auto end = notes.begin() + std::min(count, most);
  return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == end;
}

CudnnPlan CudnnGraph::build(const CudnnLimits& limits) {
  const Descriptor graph = make_graph();
  const std::vector<Descriptor> configs = offered_configs(graph);
  const cudnnHandle_t handle = cudnn_.handle();
  int64_t unordered = 0;
  int64_t large = 0;
  for (const Descriptor& config : configs) {
    Descriptor plan(cudnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (!plan.try_finalize()) continue;
    if (limits.fixed_order && !has_fixed_order(config)) {
      ++unordered;
      continue;
    }
    CudnnPlan found(cudnn_, std::move(plan), scalars_);
    if (found.workspace_bytes() <= limits.workspace_bytes) return found;
    ++large;
  }
  throw DeviceError(
      cat("cuda: of ", configs.size(), " plans that cuDNN offers for this attention, ", unordered,
          " are not deterministic, ", large, " need more than the ", limits.workspace_bytes,
          " bytes of workspace in the plan and the others do not run on this GPU; "
          "use another version of cuDNN 9"));
}

}  // namespace weft::cuda
