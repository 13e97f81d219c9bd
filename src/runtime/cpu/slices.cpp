// split_time and concat_time: one copy of contiguous memory per sample and chunk.
#include <cstring>

#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"

namespace weft {

namespace {

// Bytes of one sample.
int64_t sample_bytes(const Tensor& tensor) {
  return tensor.elements() / tensor.shape.at(0) * dtype_bytes(tensor.dtype);
}

void launch_split_time(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const int64_t bytes = sample_bytes(y);
  const char* from = x.as<char>() + launch.call->int_attr("index") * bytes;
  team(launch).run(y.shape.at(0), [&](int64_t sample) {
    std::memcpy(y.as<char>() + sample * bytes, from + sample * sample_bytes(x),
                static_cast<size_t>(bytes));
  });
}

void launch_concat_time(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  const auto parts = static_cast<int64_t>(launch.operands.size());
  team(launch).run(y.shape.at(0) * parts, [&](int64_t tile) {
    const Tensor& x = launch.operands[static_cast<size_t>(tile % parts)];
    const int64_t bytes = sample_bytes(x);
    std::memcpy(y.as<char>() + tile * bytes, x.as<char>() + tile / parts * bytes,
                static_cast<size_t>(bytes));
  });
}

}  // namespace

std::span<const Kernel> cpu_slice_kernels() {
  static const Kernel rows[] = {
      {"split_time", "copy", supports_cpu_dtypes, nullptr, launch_split_time},
      {"concat_time", "copy", supports_cpu_dtypes, nullptr, launch_concat_time},
  };
  return rows;
}

}  // namespace weft
