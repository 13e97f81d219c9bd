// Streams and events of the GPU. Calls queue work and return; an error of queued work stays with
// the GPU and is thrown by the next synchronize.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/device.h"

namespace weft::cuda {

class AttentionPlans;
class GemmPlans;
class PinnedBlocks;

// Called while the host waits, see Device::set_watch; empty: nothing.
using Watch = std::function<void(int64_t since)>;

class CudaEvent : public Event {
 public:
  explicit CudaEvent(unsigned flags = cudaEventDisableTiming);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  cudaEvent_t handle() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

class CudaStream : public Stream {
 public:
  // `options` outlive the stream.
  CudaStream(std::string_view name, std::shared_ptr<const Watch> watch,
             const DeviceOptions& options);
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
  double time(const Kernel& kernel, const Launch& launch) override;

  // Library state of this stream; created, and the library loaded, on first use.
  GemmPlans& gemm();
  AttentionPlans& attention();

  // The first error of queued work since the last synchronize; cudaSuccess: none yet.
  cudaError_t kept_error() const { return kept_error_; }
  // Throws and clears it, if there is one.
  void throw_kept_error();

  // Queues a recorded program; `description` outlives its execution.
  void replay(cudaGraphExec_t program, const std::string& description);

 private:
  // Staging memory for copies, allocated on first use.
  PinnedBlocks& pinned();
  // Keeps the first error of queued work for synchronize; `what` returns the text that names it.
  template <class Text>
  void keep(cudaError_t error, Text what);
  // The last queued work, e.g. "kernel vector_gelu in plan step 7 gelu (last: layers.0 fwd)"; empty
  // once the host has waited for it.
  std::string last_work() const;
  // " after kernel ...", or empty.
  std::string after() const;
  // The work that may have failed: a fault shows on every stream.
  std::string work_so_far() const;
  // Waits for all work to finish and calls the watch meanwhile.
  cudaError_t wait_watching();

  std::string name_;
  std::shared_ptr<const Watch> watch_;
  const DeviceOptions& options_;
  std::string_view last_kernel_;  // queued since the host last waited
  std::string_view last_where_;   // its place in the plan
  bool alone_ = false;            // nothing else is queued, on any stream
  cudaError_t kept_error_ = cudaSuccess;
  std::string kept_text_;  // describes kept_error_
  cudaStream_t handle_ = nullptr;
  std::unique_ptr<GemmPlans> gemm_;
  std::unique_ptr<AttentionPlans> attention_;
  std::unique_ptr<PinnedBlocks> pinned_;
};

// Captures what `queue` puts on the streams as one CUDA graph, which replays on the first of them.
// Errors name the program.
std::unique_ptr<Recording> record_graph(std::string_view name,
                                        std::span<const std::unique_ptr<Stream>> streams,
                                        const std::function<void()>& queue);

// The stream that a kernel of this backend launches on.
CudaStream& cuda_stream(const Launch& launch);
cudaStream_t stream_of(const Launch& launch);

}  // namespace weft::cuda
