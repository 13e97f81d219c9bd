// One kernel launch between host tensors.
#include "support/call_runner.h"

#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace weft {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr char kGuard = '\xa5';

// Device memory that starts as a copy of host bytes, with a guard behind it.
class GuardedBuffer {
 public:
  GuardedBuffer(Device& device, Stream& stream, std::vector<char> bytes)
      : device_(device), stream_(stream), bytes_(std::move(bytes)) {
    bytes_.insert(bytes_.end(), kGuardBytes, kGuard);
    memory_ = device_.allocate(static_cast<int64_t>(bytes_.size()));
    stream_.copy_in(memory_, bytes_.data(), static_cast<int64_t>(bytes_.size()));
  }
  ~GuardedBuffer() { device_.release(memory_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  void* memory() const { return memory_; }

  // The current contents; throws when the guard was overwritten.
  std::vector<char> read(std::string_view what) {
    std::vector<char> now(bytes_.size());
    stream_.copy_out(now.data(), memory_, static_cast<int64_t>(now.size()));
    stream_.synchronize();
    for (size_t i = now.size() - kGuardBytes; i < now.size(); ++i) {
      CHECK(now[i] == kGuard, what, " was written past its end");
    }
    now.resize(now.size() - kGuardBytes);
    return now;
  }

 private:
  Device& device_;
  Stream& stream_;
  std::vector<char> bytes_;
  void* memory_ = nullptr;
};

}  // namespace

HostTensor::HostTensor(TensorType tensor_type, const std::vector<double>& values)
    : HostTensor(std::move(tensor_type)) {
  CHECK(static_cast<int64_t>(values.size()) == type.elements(), values.size(), " values for ",
        to_string(type));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto put = [&](auto element) {
      std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
    };
    switch (type.dtype) {
      case DType::F64:
        put(values[i]);
        break;
      case DType::F32:
        put(static_cast<float>(values[i]));
        break;
      case DType::BF16:
        put(bf16_from_f32(static_cast<float>(values[i])));
        break;
      case DType::F16:
        put(f16_from_f32(static_cast<float>(values[i])));
        break;
      case DType::I32:
        put(static_cast<int32_t>(values[i]));
        break;
      case DType::I64:
        put(static_cast<int64_t>(values[i]));
        break;
    }
  }
}

std::vector<double> HostTensor::values() const {
  std::vector<double> all(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < all.size(); ++i) {
    const auto get = [&](auto element) {
      std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
      return element;
    };
    switch (type.dtype) {
      case DType::F64:
        all[i] = get(double{});
        break;
      case DType::F32:
        all[i] = get(float{});
        break;
      case DType::BF16:
        all[i] = f32_from_bf16(get(uint16_t{}));
        break;
      case DType::F16:
        all[i] = f32_from_f16(get(uint16_t{}));
        break;
      case DType::I32:
        all[i] = get(int32_t{});
        break;
      case DType::I64:
        all[i] = static_cast<double>(get(int64_t{}));
        break;
    }
  }
  return all;
}

std::vector<HostTensor> run_kernel(const Kernel& kernel, Device& device, const Call& call,
                                   const std::vector<HostTensor>& operands) {
  const auto stream = device.make_stream("compute");
  const std::vector<int> overwritten = overwritten_operands(call);
  std::vector<std::unique_ptr<GuardedBuffer>> in;
  std::vector<std::unique_ptr<GuardedBuffer>> out;
  Launch launch{.call = &call, .operands = {}, .results = {}, .stream = stream.get()};
  for (const HostTensor& operand : operands) {
    in.push_back(std::make_unique<GuardedBuffer>(device, *stream, operand.bytes));
    launch.operands.push_back({in.back()->memory(), operand.type.dtype, operand.type.shape});
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    const TensorType& type = call.results[i];
    out.push_back(overwritten[i] >= 0
                      ? nullptr
                      : std::make_unique<GuardedBuffer>(device, *stream, HostTensor(type).bytes));
    void* memory = out.back() ? out.back()->memory()
                              : launch.operands.at(static_cast<size_t>(overwritten[i])).data;
    launch.results.push_back({memory, type.dtype, type.shape});
  }
  launch.workspace_bytes = kernel.workspace != nullptr ? kernel.workspace(call) : 0;
  GuardedBuffer workspace(device, *stream,
                          std::vector<char>(static_cast<size_t>(launch.workspace_bytes), '\xff'));
  launch.workspace = workspace.memory();
  prepare(kernel, launch);
  stream->launch(kernel, launch);
  stream->synchronize();

  workspace.read(cat(kernel.name, ": the workspace"));
  std::vector<HostTensor> results;
  for (size_t i = 0; i < call.results.size(); ++i) {
    results.emplace_back(call.results[i]);
    GuardedBuffer& buffer = out[i] ? *out[i] : *in.at(static_cast<size_t>(overwritten[i]));
    results.back().bytes = buffer.read(cat(kernel.name, ": result ", i));
  }
  for (size_t i = 0; i < in.size(); ++i) {
    bool kept = true;
    for (int operand : overwritten) kept = kept && operand != static_cast<int>(i);
    const std::vector<char> now = in[i]->read(cat(kernel.name, ": operand ", i));
    CHECK(!kept || now == operands[i].bytes, kernel.name, ": operand ", i, " was changed");
  }
  return results;
}

std::vector<HostTensor> run_call(std::span<const Kernel> kernels, Device& device, const Call& call,
                                 const std::vector<HostTensor>& operands) {
  return run_kernel(choose_kernel(kernels, call, "test", "y"), device, call, operands);
}

}  // namespace weft
