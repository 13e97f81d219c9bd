// split_time and concat_time: one copy of contiguous memory per sample and chunk. take_shard: one
// per row of the dims before its own. split_columns and concat_columns: one per row and tensor.
// repeat_kv: one per head.
#include <algorithm>
#include <cstring>

#include "plan/repeated_heads.h"
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
  const int64_t shards = launch.call->int_attr("shards");
  const int64_t bytes = sample_bytes(y) / shards;
  const char* from = x.as<char>() + launch.call->int_attr("index") * bytes;
  team(launch).run(y.shape.at(0) * shards, [&](int64_t shard) {
    std::memcpy(y.as<char>() + shard * bytes, from + shard * (sample_bytes(x) / shards),
                static_cast<size_t>(bytes));
  });
}

void launch_concat_time(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  const auto parts = static_cast<int64_t>(launch.operands.size());
  const int64_t shards = launch.call->int_attr("shards");
  team(launch).run(y.shape.at(0) * shards * parts, [&](int64_t tile) {
    const Tensor& x = launch.operands[static_cast<size_t>(tile % parts)];
    const int64_t bytes = sample_bytes(x) / shards;
    std::memcpy(y.as<char>() + tile * bytes, x.as<char>() + tile / parts * bytes,
                static_cast<size_t>(bytes));
  });
}

// Copies the columns of `part` from those of `packed` that begin at `first`, or back.
template <bool kPack>
void copy_columns(const Launch& launch, const Tensor& part, const Tensor& packed, int64_t first) {
  const int64_t element = dtype_bytes(part.dtype);
  const int64_t width = row_length(part) * element, pitch = row_length(packed) * element;
  const int64_t rows = row_count(part), step = tile_rows(row_length(part));
  team(launch).run(ceil_div(rows, step), [&](int64_t tile) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      char* one = part.as<char>() + row * width;
      char* other = packed.as<char>() + row * pitch + first * element;
      std::memcpy(kPack ? other : one, kPack ? one : other, static_cast<size_t>(width));
    }
  });
}

void launch_split_columns(const Launch& launch) {
  int64_t first = 0;
  for (const Tensor& part : launch.results) {
    copy_columns<false>(launch, part, launch.operands.at(0), first);
    first += row_length(part);
  }
}

void launch_concat_columns(const Launch& launch) {
  int64_t first = 0;
  for (const Tensor& part : launch.operands) {
    copy_columns<true>(launch, part, launch.results.at(0), first);
    first += row_length(part);
  }
}

// The heads of this rank; all of them without a coordinate.
RepeatedHeads heads_of(const Launch& launch) {
  const int64_t index = launch.operands.size() > 1 ? scalar_i32(launch.operands[1]) : 0;
  return repeated_heads(*launch.call, index);
}

void launch_repeat_kv(const Launch& launch) {
  const Tensor& y = launch.results.at(0);
  const RepeatedHeads heads = heads_of(launch);
  const int64_t bytes = y.elements() / heads.size() * dtype_bytes(y.dtype);
  const char* w = launch.operands.at(0).as<char>();
  team(launch).run(heads.size(), [&](int64_t at) {
    std::memcpy(y.as<char>() + at * bytes, w + heads.source(at) * bytes,
                static_cast<size_t>(bytes));
  });
}

// Rows of a head are added through a buffer that holds part of a row.
void launch_repeat_kv_grad(const Launch& launch) {
  constexpr int64_t kColumns = 1024;
  const Tensor& dy = launch.operands.at(0);
  const Tensor& dw = launch.results.at(0);
  const RepeatedHeads heads = heads_of(launch);
  const int64_t each = dy.elements() / heads.size();
  const int64_t tiles = ceil_div(each, kColumns);
  team(launch).run(dw.elements() / each * tiles, [&](int64_t tile) {
    float sums[kColumns], summand[kColumns], result[kColumns];
    const int64_t head = tile / tiles, column = tile % tiles * kColumns;
    const int64_t n = std::min(kColumns, each - column);
    std::fill_n(sums, n, 0.0F);
    const auto [begin, end] = heads.copies_of(head);
    for (int64_t at = begin; at < end; ++at) {
      add_to_row(load(dy, at * each + column, n, summand), n, sums);
    }
    float* to = place(dw, head * each + column, result);
    std::copy_n(sums, n, to);
    store(dw, head * each + column, n, to);
  });
}

// A shard is [outer, row], one or two ranges of a row of x; what lies beyond them is zero.
void launch_take_shard(const Launch& launch) {
  constexpr int64_t kColumns = 16384;
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const auto dim = static_cast<size_t>(launch.call->int_attr("dim"));
  const int64_t element = dtype_bytes(x.dtype);
  int64_t inner = 1;
  for (size_t i = dim + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  const int64_t part = y.shape.at(dim), size = x.shape.at(dim);
  const int64_t row = part * inner;
  if (row == 0) return;
  const int64_t full_row = size * inner;
  const std::vector<DimRange> ranges =
      shard_ranges(launch.call->text_attr("axis"), size, ceil_div(size, part),
                   scalar_i32(launch.operands.at(1)));
  const int64_t rows = y.elements() / row;
  const int64_t step = tile_rows(row);
  const int64_t columns = ceil_div(row, kColumns);
  team(launch).run(ceil_div(rows, step) * columns, [&](int64_t tile) {
    const int64_t begin = tile % columns * kColumns;
    const int64_t end = std::min(row, begin + kColumns);
    const int64_t top = tile / columns * step;
    for (int64_t i = top; i < std::min(rows, top + step); ++i) {
      char* to = y.as<char>() + i * row * element;
      const char* from = x.as<char>() + i * full_row * element;
      int64_t at = 0;  // where a range begins in the row of the shard
      for (const DimRange& range : ranges) {
        const int64_t low = std::max(begin, at), high = std::min(end, at + range.size * inner);
        if (low < high) {
          std::memcpy(to + low * element, from + (range.begin * inner + low - at) * element,
                      static_cast<size_t>((high - low) * element));
        }
        at += range.size * inner;
      }
      const int64_t rest = std::clamp(at, begin, end);
      std::memset(to + rest * element, 0, static_cast<size_t>((end - rest) * element));
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
      {"repeat_kv", "copy", supports_cpu_dtypes, nullptr, launch_repeat_kv},
      {"repeat_kv_grad", "rows", supports_cpu_dtypes, nullptr, launch_repeat_kv_grad},
      {"split_qkv", "copy", supports_cpu_dtypes, nullptr, launch_split_columns},
      {"concat_qkv", "copy", supports_cpu_dtypes, nullptr, launch_concat_columns},
      {"split_columns", "copy", supports_cpu_dtypes, nullptr, launch_split_columns},
      {"concat_columns", "copy", supports_cpu_dtypes, nullptr, launch_concat_columns},
      {"take_shard", "copy", supports_cpu_dtypes, nullptr, launch_take_shard},
      {"to_partial", "copy", supports_cpu_dtypes, nullptr, launch_to_partial},
  };
  return rows;
}

}  // namespace weft
