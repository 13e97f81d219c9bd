// CUDA memory, streams and events behind the device interfaces. Destructors ignore errors: a dead
// context fails every call, and what killed it has been thrown by synchronize.
#include "runtime/cuda/device.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "runtime/cuda/check.h"

namespace weft::cuda {

namespace {

std::string error_text(cudaError_t error, std::string_view what) {
  return cat("cuda: ", what, " failed: ", cudaGetErrorString(error), " (", cudaGetErrorName(error),
             ")");
}

}  // namespace

void throw_cuda_error(cudaError_t error, const char* what) {
  throw DeviceError(error_text(error, what));
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

void CudaStream::keep(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess && kept_error_.empty()) kept_error_ = error_text(error, what);
}

void CudaStream::launch(const Kernel& kernel, const Launch& launch) {
  kernel.launch(launch);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    // Asking again clears an error of this launch; one of earlier work stays.
    const bool own = cudaGetLastError() == cudaSuccess;
    keep(error, own ? cat("launch of ", kernel.name) : cat("work queued before ", kernel.name));
  }
  last_kernel_ = kernel.name;
}

void CudaStream::copy_in(void* device, const void* host, int64_t bytes) {
  keep(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, handle_),
       cat("copy of ", bytes, " bytes to the GPU"));
}

void CudaStream::copy_out(void* host, const void* device, int64_t bytes) {
  keep(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, handle_),
       cat("copy of ", bytes, " bytes from the GPU"));
}

void CudaStream::zero(void* device, int64_t bytes) {
  keep(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), handle_),
       cat("zeroing ", bytes, " bytes"));
}

void CudaStream::signal(Event& event) {
  keep(cudaEventRecord(static_cast<CudaEvent&>(event).handle(), handle_), "signal of an event");
}

void CudaStream::wait(Event& event) {
  keep(cudaStreamWaitEvent(handle_, static_cast<CudaEvent&>(event).handle(), 0),
       "wait for an event");
}

void CudaStream::synchronize() {
  keep(cudaStreamSynchronize(handle_),
       cat("work on stream ", name_, " (last kernel queued: ", last_kernel_, ")"));
  if (kept_error_.empty()) return;
  throw DeviceError(std::exchange(kept_error_, {}));
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

int64_t CudaDevice::memory_bytes() const {
  size_t free = 0;
  size_t total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(total);
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
