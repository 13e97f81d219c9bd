// split_time and concat_time: one copy of contiguous memory per sample and chunk. take_shard: one
// per row of the dims before its own.
#include <algorithm>
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

// A shard is [outer, row]; what lies beyond the end of the dim is zero.
void launch_take_shard(const Launch& launch) {
  constexpr int64_t kColumns = 16384;
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const auto dim = static_cast<size_t>(launch.call->int_attr("dim"));
  const int64_t element = dtype_bytes(x.dtype);
  int64_t inner = 1;
  for (size_t i = dim + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  const int64_t row = y.shape.at(dim) * inner;
  if (row == 0) return;
  const int64_t full_row = x.shape.at(dim) * inner;
  const int64_t first = scalar_i32(launch.operands.at(1)) * row;
  const int64_t filled = std::clamp<int64_t>(full_row - first, 0, row);
  const int64_t rows = y.elements() / row;
  const int64_t step = tile_rows(row);
  const int64_t columns = ceil_div(row, kColumns);
  team(launch).run(ceil_div(rows, step) * columns, [&](int64_t tile) {
    const int64_t begin = tile % columns * kColumns;
    const int64_t end = std::min(row, begin + kColumns);
    const int64_t middle = std::clamp(filled, begin, end);
    const int64_t top = tile / columns * step;
    for (int64_t i = top; i < std::min(rows, top + step); ++i) {
      char* to = y.as<char>() + i * row * element;
      const char* from = x.as<char>() + (i * full_row + first) * element;
      if (middle > begin) {
        std::memcpy(to + begin * element, from + begin * element,
                    static_cast<size_t>((middle - begin) * element));
      }
      std::memset(to + middle * element, 0, static_cast<size_t>((end - middle) * element));
    }
  });
}

void launch_to_partial(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const auto bytes = static_cast<size_t>(x.elements() * dtype_bytes(x.dtype));
  if (scalar_i32(launch.operands.at(1)) == 0) {
    std::memcpy(y.data, x.data, bytes);
  } else {
    std::memset(y.data, 0, bytes);
  }
}

}  // namespace

std::span<const Kernel> cpu_slice_kernels() {
  static const Kernel rows[] = {
      {"split_time", "copy", supports_cpu_dtypes, nullptr, launch_split_time},
      {"concat_time", "copy", supports_cpu_dtypes, nullptr, launch_concat_time},
      {"take_shard", "copy", supports_cpu_dtypes, nullptr, launch_take_shard},
      {"to_partial", "copy", supports_cpu_dtypes, nullptr, launch_to_partial},
  };
  return rows;
}

}  // namespace weft
