// A small builder over cuDNN's backend API: tensors and operations go in, an execution plan with a
// known workspace comes out. It covers only what attention needs.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/cuda/device/library.h"

namespace weft::cuda {

// The loaded library and its handle for one stream.
class Cudnn {
 public:
  explicit Cudnn(cudaStream_t stream);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  struct Functions;
  const Functions& functions() const { return *functions_; }
  cudnnHandle_t handle() const { return handle_; }
  // Throws DeviceError with cuDNN's message unless the status is success.
  void check(cudnnStatus_t status, const char* what) const;

 private:
  Library library_;
  std::unique_ptr<Functions> functions_;
  cudnnHandle_t handle_ = nullptr;
};

// One object of the backend API.
class Descriptor {
 public:
  Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&&) = delete;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void set(cudnnBackendAttributeName_t name, int64_t value);
  void set(cudnnBackendAttributeName_t name, bool value);
  void set(cudnnBackendAttributeName_t name, const Descriptor& value);
  void finalize();
  // Whether it can be finalized; the library's reason is discarded.
  bool try_finalize();

 private:
  const Cudnn& cudnn_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

using Axes = std::array<int64_t, 4>;  // batch, head, row, column

// Index of a tensor of a graph.
using TensorId = int64_t;

class CudnnPlan {
 public:
  CudnnPlan(const Cudnn& cudnn, Descriptor plan, std::map<TensorId, float> scalars);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Queues it on the handle's stream; `tensors` are the bound ones.
  void run(const std::map<TensorId, void*>& tensors, void* workspace) const;

 private:
  const Cudnn& cudnn_;
  Descriptor plan_;
  std::map<TensorId, float> scalars_;
  int64_t workspace_bytes_ = 0;
};

// Requirements on a plan.
struct CudnnLimits {
  int64_t workspace_bytes = 0;
  bool fixed_order = false;  // rejects engines that are marked nondeterministic
};

class CudnnGraph {
 public:
  explicit CudnnGraph(const Cudnn& cudnn) : cudnn_(cudnn) {}

  // A tensor that is bound to memory when the plan runs.
  TensorId bound(cudnnDataType_t type, const Axes& dims, const Axes& strides);
  // An intermediate tensor that exists only inside the kernel.
  TensorId between(cudnnDataType_t type, const Axes& dims, const Axes& strides);
  // A constant that is passed by value.
  TensorId scalar(float value);

  // y = mode(x...); one to three operands.
  void pointwise(cudnnPointwiseMode_t mode, std::span<const TensorId> x, TensorId y,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  // y = the index along an axis.
  void index(TensorId like, int64_t axis, TensorId y);
  void matmul(TensorId a, TensorId b, TensorId c);
  void reduce(cudnnReduceTensorOp_t mode, TensorId x, TensorId y);
  // The same elements with other dims and strides.
  void view(TensorId x, TensorId y);

  // The first plan of the heuristic within the limits; throws DeviceError when there is none.
  CudnnPlan build(const CudnnLimits& limits);

 private:
  enum class TensorKind { Bound, Between, Scalar };
  TensorId add_tensor(cudnnDataType_t type, const Axes& dims, const Axes& strides, TensorKind kind);
  void add_operation(cudnnBackendDescriptorType_t type,
                     std::span<const std::pair<cudnnBackendAttributeName_t, TensorId>> tensors,
                     cudnnBackendAttributeName_t what_name, const Descriptor* what);
  Descriptor make_graph() const;
  std::vector<Descriptor> offered_configs(const Descriptor& graph) const;
  bool has_fixed_order(const Descriptor& config) const;

  const Cudnn& cudnn_;
  std::vector<Descriptor> tensors_;
  std::vector<Descriptor> parts_;  // descriptors that operations refer to
  std::vector<Descriptor> operations_;
  std::map<TensorId, float> scalars_;
};

}  // namespace weft::cuda
