// CUDA memory, streams and events behind the device interfaces. Destructors ignore errors: a dead
// context fails every call, and what killed it has been thrown by synchronize.
#include "runtime/cuda/device.h"

#include <algorithm>

#include "base/text.h"
#include "runtime/cuda/check.h"

namespace weft::cuda {

void throw_cuda_error(cudaError_t error, const char* what) {
  throw DeviceError(cat("cuda: ", what, " failed: ", cudaGetErrorString(error), " (",
                        cudaGetErrorName(error), ")"));
}

CudaEvent::CudaEvent() {
  CUDA_CHECK(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(handle_);
}

CudaStream::CudaStream(std::string_view name) : name_(name) {
  CUDA_CHECK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  cudaStreamDestroy(handle_);
}

void CudaStream::launch(const Kernel& kernel, const Launch& launch) {
  last_kernel_ = kernel.name;
  kernel.launch(launch);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw_cuda_error(error, cat("launch of ", kernel.name).c_str());
}

void CudaStream::copy_in(void* device, const void* host, int64_t bytes) {
  CUDA_CHECK(
      cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, handle_));
}

void CudaStream::copy_out(void* host, const void* device, int64_t bytes) {
  CUDA_CHECK(
      cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, handle_));
}

void CudaStream::zero(void* device, int64_t bytes) {
  CUDA_CHECK(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), handle_));
}

void CudaStream::signal(Event& event) {
  CUDA_CHECK(cudaEventRecord(static_cast<CudaEvent&>(event).handle(), handle_));
}

void CudaStream::wait(Event& event) {
  CUDA_CHECK(cudaStreamWaitEvent(handle_, static_cast<CudaEvent&>(event).handle(), 0));
}

void CudaStream::synchronize() {
  const cudaError_t error = cudaStreamSynchronize(handle_);
  if (error == cudaSuccess) return;
  const std::string what =
      cat("work on stream ", name_, " (last kernel queued: ", last_kernel_, ")");
  throw_cuda_error(error, what.c_str());
}

CudaDevice::CudaDevice() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    const char* reason = error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none";
    throw DeviceError(cat("cuda: no GPU found (", reason, "); use device.backend = \"cpu\""),
                      ExitCode::Config);
  }
  CUDA_CHECK(cudaSetDevice(0));
  CUDA_CHECK(cudaFree(nullptr));  // makes the context now, so that a broken driver shows here
}

std::string CudaDevice::description() const {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  return properties.name;
}

void* CudaDevice::allocate(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (error == cudaSuccess) return memory;
  cudaGetLastError();  // forgets it: running out of memory does not harm the context
  if (error != cudaErrorMemoryAllocation) throw_cuda_error(error, "cudaMalloc");
  size_t free = 0;
  size_t total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  throw DeviceError(
      cat("cuda: out of memory: the plan needs ", human_bytes(static_cast<double>(bytes)),
          ", the GPU has ", human_bytes(static_cast<double>(free)), " free of ",
          human_bytes(static_cast<double>(total)), "; use a smaller batch or more recomputation"),
      ExitCode::OutOfMemory);
}

void CudaDevice::release(void* memory) {
  cudaFree(memory);
}

std::unique_ptr<Stream> CudaDevice::make_stream(std::string_view name) {
  return std::make_unique<CudaStream>(name);
}

std::unique_ptr<Event> CudaDevice::make_event() {
  return std::make_unique<CudaEvent>();
}

std::unique_ptr<Device> make_device(const DeviceOptions&) {
  return std::make_unique<CudaDevice>();
}

cudaStream_t stream_of(const Launch& launch) {
  return static_cast<CudaStream*>(launch.stream)->handle();
}

}  // namespace weft::cuda
