#include "runtime/kernel_timer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/philox.h"
#include "plan/plan.h"

namespace weft {
namespace {

// Batches are shorter than the time slice for which systems let a thread run undisturbed.
constexpr double kRowSeconds = 0.002;
constexpr int64_t kLongestRow = 500;
constexpr double kAllRowsSeconds = 0.05;
constexpr int kFewestRows = 3;
// Seconds for which matmuls run before they are measured, so that the device's clock settles at its
// power limit, as in a training step.
constexpr double kSettling = 0.1;

// Device memory for the duration of a measurement.
class Block {
 public:
  Block(Device& device, int64_t bytes) : device_(device), memory_(device.allocate(bytes)) {}
  ~Block() { device_.release(memory_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void* memory() const { return memory_; }

 private:
  Device& device_;
  void* memory_;
};

// A tensor is filled with copies of this many elements.
constexpr int64_t kMadeUp = 1 << 20;

// Values between -1 and 1 whose bits all vary, as in training: a GPU's clock falls with the power
// that its matrix units draw. Integers are indices that are valid in any table.
std::vector<char> made_up(const TensorType& type) {
  const int64_t size = dtype_bytes(type.dtype);
  const int64_t elements = std::min(type.elements(), kMadeUp);
  std::vector<char> bytes(static_cast<size_t>(elements * size));
  for (int64_t i = 0; i < elements; ++i) {
    const auto put = [&](auto value) {
      std::memcpy(&bytes[static_cast<size_t>(i * size)], &value, sizeof value);
    };
    const auto random = static_cast<uint32_t>(mix64(static_cast<uint64_t>(i) + 1));
    const float value = 2 * unit_from_bits(random) - 1;
    switch (type.dtype) {
      case DType::F64:
        put(static_cast<double>(value));
        break;
      case DType::F32:
        put(value);
        break;
      case DType::BF16:
        put(bf16_from_f32(value));
        break;
      case DType::F16:
        put(f16_from_f32(value));
        break;
      case DType::I32:
        put(static_cast<int32_t>(1 + i % 50));
        break;
      case DType::I64:
        put(1 + i % 50);
        break;
    }
  }
  return bytes;
}

}  // namespace

double best_seconds(Stream& stream, const std::function<void()>& queue, double settling) {
  const auto row = [&](int64_t count) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) queue();
    stream.synchronize();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return taken.count() / static_cast<double>(count);
  };
  row(1);  // pages in memory and code
  const auto fitting = static_cast<int64_t>(kRowSeconds / std::max(row(1), 1e-9));
  const int64_t count = std::clamp<int64_t>(fitting, 1, kLongestRow);
  for (double settled = 0; settled < settling;) {
    settled += row(count) * static_cast<double>(count);
  }
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int i = 0; i < kFewestRows || spent < kAllRowsSeconds; ++i) {
    const double seconds = row(count);
    best = std::min(best, seconds);
    spent += seconds * static_cast<double>(count);
  }
  return best;
}

KernelTimer::KernelTimer(std::span<const Kernel> kernels, std::string_view backend, Device& device)
    : kernels_(kernels),
      backend_(backend),
      device_(device),
      stream_(device.make_stream(stream_name(StreamId::Compute))) {}

double KernelTimer::seconds(const Call& call) {
  double best = 0;
  with_launch(call, [&](const Kernel& kernel, const Launch& launch) {
    best = best_seconds(
        *stream_, [&] { stream_->launch(kernel, launch); }, call.op->traits.matmul ? kSettling : 0);
  });
  return best;
}

std::optional<TunedCall> KernelTimer::tune(const Call& call) {
  std::optional<TunedCall> tuned;
  with_launch(call, [&](const Kernel& kernel, const Launch& launch) {
    tuned = device_.tune(kernel, launch);
  });
  return tuned;
}

void KernelTimer::with_launch(const Call& call,
                              const std::function<void(const Kernel&, const Launch&)>& action) {
  const Kernel& kernel = choose_kernel(kernels_, call, backend_, call.op->name());
  std::vector<std::unique_ptr<Block>> blocks;
  const auto add = [&](int64_t bytes) {
    return blocks.emplace_back(std::make_unique<Block>(device_, bytes))->memory();
  };
  Launch launch;
  launch.call = &call;
  launch.stream = stream_.get();
  for (const TensorType& type : call.operands) {
    launch.operands.push_back({add(type.bytes()), type.dtype, type.shape});
    const std::vector<char> bytes = made_up(type);
    const auto block = static_cast<int64_t>(bytes.size());
    for (int64_t at = 0; at < type.bytes(); at += block) {
      stream_->copy_in(static_cast<char*>(launch.operands.back().data) + at, bytes.data(),
                       std::min(block, type.bytes() - at));
    }
    stream_->synchronize();
  }
  const std::vector<int> over = overwritten_operands(call);
  for (size_t i = 0; i < call.results.size(); ++i) {
    const TensorType& type = call.results[i];
    void* memory =
        over[i] >= 0 ? launch.operands.at(static_cast<size_t>(over[i])).data : add(type.bytes());
    launch.results.push_back({memory, type.dtype, type.shape});
  }
  launch.workspace_bytes = kernel.workspace != nullptr ? kernel.workspace(call) : 0;
  if (launch.workspace_bytes > 0) launch.workspace = add(launch.workspace_bytes);
  prepare(kernel, launch);
  action(kernel, launch);
}

}  // namespace weft
