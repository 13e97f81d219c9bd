// The CUDA device: GPU 0 of the process, its streams and events. Calls queue work and return; an
// error of queued work stays with the GPU and is thrown by the next synchronize.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "runtime/device.h"

namespace weft::cuda {

class CudaEvent : public Event {
 public:
  CudaEvent();
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  cudaEvent_t handle() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

class CudaStream : public Stream {
 public:
  explicit CudaStream(std::string_view name);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t handle() const { return handle_; }

  void launch(const Kernel& kernel, const Launch& launch) override;
  void copy_in(void* device, const void* host, int64_t bytes) override;
  void copy_out(void* host, const void* device, int64_t bytes) override;
  void zero(void* device, int64_t bytes) override;
  void signal(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

 private:
  // Keeps the first error of queued work for synchronize.
  void keep(cudaError_t error, const std::string& what);

  std::string name_;
  std::string last_kernel_ = "none";
  std::string kept_error_;  // empty: none
  cudaStream_t handle_ = nullptr;
};

class CudaDevice : public Device {
 public:
  CudaDevice();
  std::string description() const override;
  int64_t memory_bytes() const override;
  void* allocate(int64_t bytes) override;
  void release(void* memory) override;
  std::unique_ptr<Stream> make_stream(std::string_view name) override;
  std::unique_ptr<Event> make_event() override;
};

// GPU 0; throws DeviceError when there is no GPU that this build can use.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

// The CUDA stream that a kernel of this backend launches on.
cudaStream_t stream_of(const Launch& launch);

}  // namespace weft::cuda
