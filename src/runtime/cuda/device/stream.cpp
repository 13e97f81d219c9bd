// CUDA streams and events behind the device interfaces. Destructors ignore errors: a dead context
// fails every call, and synchronize has already thrown the cause.
#include "runtime/cuda/device/stream.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/text.h"
#include "runtime/cuda/attention/cudnn_attention.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/device/delay_kernel.h"
#include "runtime/cuda/device/pinned.h"
#include "runtime/cuda/gemm/gemm.h"
#include "runtime/run_launch.h"

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

CudaEvent::CudaEvent(unsigned flags) {
  CUDA_CHECK(cudaEventCreateWithFlags(&handle_, flags));
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(handle_);
}

CudaStream::CudaStream(std::string_view name, std::shared_ptr<const Watch> watch,
                       const DeviceOptions& options)
    : name_(name), watch_(std::move(watch)), options_(options) {
  CUDA_CHECK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  pinned_.reset();
  cudaStreamDestroy(handle_);
}

template <class Text>
void CudaStream::keep(cudaError_t error, Text what) {
  if (error == cudaSuccess || kept_error_ != cudaSuccess) return;
  kept_error_ = error;
  kept_text_ = error_text(error, what());
}

std::string CudaStream::last_work() const {
  if (last_kernel_.empty()) return std::string(last_where_);
  return cat("kernel ", last_kernel_, last_where_.empty() ? "" : " in ", last_where_);
}

std::string CudaStream::after() const {
  const std::string last = last_work();
  return last.empty() ? "" : cat(" after ", last);
}

void CudaStream::launch(const Kernel& kernel, const Launch& launch) {
  run_launch(kernel, launch);
  last_kernel_ = kernel.name;
  last_where_ = launch.where;
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  // A second call clears an error of the launch itself; an error of running work stays.
  const bool refused = cudaGetLastError() == cudaSuccess;
  keep(error, [&] { return refused ? cat("launch of ", last_work()) : work_so_far(); });
}

std::string CudaStream::work_so_far() const {
  const std::string last = last_work();
  if (last.empty()) return cat("work on stream ", name_);
  return alone_ ? last
                : cat("work up to ", last, " on stream ", name_,
                      " (device.step_by_step = true names the step)");
}

void CudaStream::copy_in(void* device, const void* host, int64_t bytes) {
  keep(pinned().copy_in(device, host, bytes),
       [&] { return cat("copy of ", bytes, " bytes to the GPU", after()); });
}

namespace {

// Whether the GPU can write this host memory directly.
bool is_pinned(const void* host) {
  cudaPointerAttributes attributes{};
  const bool known = cudaPointerGetAttributes(&attributes, host) == cudaSuccess;
  if (!known) cudaGetLastError();  // clears the error: the pointer is merely not CUDA's
  return known && attributes.type == cudaMemoryTypeHost;
}

}  // namespace

void CudaStream::copy_out(void* host, const void* device, int64_t bytes) {
  if (is_pinned(host)) {
    keep(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, handle_),
         [&] { return cat("copy of ", bytes, " bytes from the GPU", after()); });
    return;
  }
  keep(pinned().copy_out(host, device, bytes),
       [&] { return cat("copy of ", bytes, " bytes from the GPU", after()); });
}

void CudaStream::zero(void* device, int64_t bytes) {
  keep(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), handle_),
       [&] { return cat("zeroing ", bytes, " bytes", after()); });
}

void CudaStream::signal(Event& event) {
  keep(cudaEventRecord(static_cast<CudaEvent&>(event).handle(), handle_),
       [&] { return cat("signal of an event", after()); });
}

void CudaStream::wait(Event& event) {
  keep(cudaStreamWaitEvent(handle_, static_cast<CudaEvent&>(event).handle(), 0),
       [&] { return cat("wait for an event", after()); });
}

// Short waits poll without a pause, so that small results reach the host without extra latency.
cudaError_t CudaStream::wait_watching() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kBetweenLooks{1};
  constexpr std::chrono::microseconds kPause{20};
  const Clock::time_point start = Clock::now();
  const int64_t since =
      std::chrono::duration_cast<std::chrono::nanoseconds>(start.time_since_epoch()).count();
  Clock::time_point next = start + kBetweenLooks;
  bool looked = false;
  cudaError_t state;
  while ((state = cudaStreamQuery(handle_)) == cudaErrorNotReady) {
    if (looked) std::this_thread::sleep_for(kPause);
    if (Clock::now() < next) continue;
    (*watch_)(since);
    looked = true;
    next = Clock::now() + kBetweenLooks;
  }
  return state;
}

void CudaStream::synchronize() {
  keep(*watch_ ? wait_watching() : cudaStreamSynchronize(handle_), [&] { return work_so_far(); });
  last_kernel_ = last_where_ = {};
  alone_ = false;
  throw_kept_error();
}

void CudaStream::throw_kept_error() {
  if (std::exchange(kept_error_, cudaSuccess) == cudaSuccess) return;
  throw DeviceError(std::exchange(kept_text_, {}));
}

// The GPU pauses until the kernel is queued, so that host time is not measured.
double CudaStream::time(const Kernel& kernel, const Launch& launch) {
  CudaEvent start(cudaEventDefault);
  CudaEvent end(cudaEventDefault);
  launch_delay(handle_);
  signal(start);
  alone_ = true;
  this->launch(kernel, launch);
  signal(end);
  synchronize();
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.handle(), end.handle()));
  return milliseconds * 1e-3;
}

GemmPlans& CudaStream::gemm() {
  if (!gemm_) gemm_ = std::make_unique<GemmPlans>(options_.tuning, options_.tf32);
  return *gemm_;
}

AttentionPlans& CudaStream::attention() {
  if (!attention_) attention_ = std::make_unique<AttentionPlans>(handle_);
  return *attention_;
}

PinnedBlocks& CudaStream::pinned() {
  if (!pinned_) pinned_ = std::make_unique<PinnedBlocks>(handle_);
  return *pinned_;
}

void CudaStream::replay(cudaGraphExec_t program, const std::string& description) {
  last_kernel_ = {};
  last_where_ = description;
  keep(cudaGraphLaunch(program, handle_), [&] { return cat("replay of ", description); });
}

CudaStream& cuda_stream(const Launch& launch) {
  return *static_cast<CudaStream*>(launch.stream);
}

cudaStream_t stream_of(const Launch& launch) {
  return cuda_stream(launch).handle();
}

}  // namespace weft::cuda
