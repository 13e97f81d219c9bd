// A GPU: its memory, and whether this build can run on it.
#include "runtime/cuda/device/device.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/device/probe.h"
#include "runtime/cuda/device/stream.h"
#include "runtime/cuda/gemm/gemm.h"

namespace weft::cuda {

namespace {

// Compute capability of Ampere: kernels use its asynchronous copies and bf16 matrix units.
constexpr int kMinMajor = 8;

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const DeviceOptions& options) : options_(options) {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      const char* reason =
          error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none";
      throw DeviceError(cat("cuda: no GPU found (", reason, "); use the backend cpu"),
                        ExitCode::Config);
    }
    if (devices < options.needed) {
      throw DeviceError(cat("cuda: ", options.needed, " ranks need a GPU each, found ", devices,
                            "; use --ranks=", devices, " or, for a test, device.share_gpu = true"),
                        ExitCode::Config);
    }
    CUDA_CHECK(cudaSetDevice(index()));
    CUDA_CHECK(cudaFree(nullptr));  // creates the context, to detect a broken driver here
    check_architecture();
    const Tuning& tuning = options_.tuning;
    USER_CHECK(tuning.empty() || tuning.device == description(), "device.tuning: made on \"",
               tuning.device, "\", this is \"", description(),
               "\"; measure this one with weft bench tune");
  }

  std::string description() const override { return properties().name; }

  int64_t memory_bytes() const override {
    return static_cast<int64_t>(properties().totalGlobalMem);
  }

  int64_t cache_bytes() const override { return properties().l2CacheSize; }

  std::optional<int64_t> free_bytes() const override {
    size_t free = 0;
    size_t total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }

  int64_t used_bytes() const override {
    size_t free = 0;
    size_t total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(total - free);
  }

  void* allocate(int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    if (error == cudaSuccess) return memory;
    cudaGetLastError();  // clears the error: running out of memory does not harm the context
    if (error != cudaErrorMemoryAllocation) throw_cuda_error(error, "cudaMalloc");
    throw DeviceError(
        cat("cuda: out of memory: the plan needs ", human_bytes(static_cast<double>(bytes)),
            ", the GPU has ", human_bytes(static_cast<double>(*free_bytes())), " free of ",
            human_bytes(static_cast<double>(properties().totalGlobalMem)),
            "; use a smaller batch or more recomputation"),
        ExitCode::OutOfMemory);
  }

  void release(void* memory) override { cudaFree(memory); }

  HostMemory allocate_host(int64_t bytes) override {
    void* memory = nullptr;
    CUDA_CHECK(cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))));
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return {static_cast<std::byte*>(memory), [](std::byte* block) { cudaFreeHost(block); }};
  }

  std::unique_ptr<Stream> make_stream(std::string_view name) override {
    return std::make_unique<CudaStream>(name, watch_, options_);
  }

  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(); }

  void set_watch(const Watch& watch) override { *watch_ = watch; }

  std::optional<TunedCall> tune(const Kernel& kernel, const Launch& launch) override {
    return tune_gemm(kernel, launch);
  }

  std::unique_ptr<Recording> record(std::string_view name,
                                    std::span<const std::unique_ptr<Stream>> streams,
                                    const std::function<void()>& queue) override {
    return options_.record ? record_graph(name, streams, queue) : nullptr;
  }

 private:
  int index() const { return static_cast<int>(options_.index); }

  cudaDeviceProp properties() const {
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, index()));
    return properties;
  }

  void check_architecture() const {
    if (has_code_for_this_gpu() && has_hopper_code_for_this_gpu()) return;
    const cudaDeviceProp gpu = properties();
    if (gpu.major < kMinMajor) {
      throw DeviceError(
          cat("cuda: ", gpu.name, " has compute capability ", gpu.major, ".", gpu.minor,
              ", Weft needs ", kMinMajor, ".0 or newer; use device.backend = \"cpu\""),
          ExitCode::Config);
    }
    throw DeviceError(
        cat("cuda: ", gpu.name, " has compute capability ", gpu.major, ".", gpu.minor,
            ", for which this build has no code; build with -DCMAKE_CUDA_ARCHITECTURES=", gpu.major,
            gpu.minor),
        ExitCode::Config);
  }

  const DeviceOptions options_;
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
};

}  // namespace

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace weft::cuda
