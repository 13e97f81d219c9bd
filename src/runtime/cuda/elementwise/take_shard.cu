// take_shard: one or two ranges of a tensor along a dim; to_partial: a tensor on one rank, zeros on
// the others. Which one is a value on the device, so these are kernels and not copies that the host
// queues.
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/elements.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

// Both tensors as rows: [outer, dim x inner].
struct Range {
  const int32_t* coordinate = nullptr;
  int64_t elements = 0;  // of the shard
  int64_t row = 0;
  int64_t full_row = 0;
  bool head_tail = false;  // over cp
};

// What lies beyond the end of the dim is zero.
template <class Element>
__global__ void take_shard(Range range, const Element* x, Element* y) {
  const int64_t i = global_thread();
  if (i >= range.elements) return;
  const ContextShard shard{range.row, range.full_row / range.row, *range.coordinate};
  const int64_t at =
      range.head_tail ? shard.in_full(i % range.row) : shard.index * range.row + i % range.row;
  y[i] = at < range.full_row ? x[i / range.row * range.full_row + at] : Element{0};
}

template <class Element>
void launch_as(const Range& range, const Launch& launch) {
  take_shard<<<blocks_for(range.elements, kThreads), kThreads, 0, stream_of(launch)>>>(
      range, launch.operands.at(0).as<const Element>(), launch.results.at(0).as<Element>());
  CUDA_CHECK(cudaGetLastError());
}

template <class Element>
__global__ void to_partial(const int32_t* coordinate, int64_t n, const Element* x, Element* y) {
  const int64_t i = global_thread();
  if (i < n) y[i] = *coordinate == 0 ? x[i] : Element{0};
}

template <class Element>
void launch_partial_as(const Launch& launch) {
  const int64_t n = launch.results.at(0).elements();
  to_partial<<<blocks_for(n, kThreads), kThreads, 0, stream_of(launch)>>>(
      launch.operands.at(1).as<const int32_t>(), n, launch.operands.at(0).as<const Element>(),
      launch.results.at(0).as<Element>());
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_to_partial(const Launch& launch) {
  if (launch.results.at(0).elements() == 0) return;
  if (dtype_bytes(launch.results.at(0).dtype) == 2) return launch_partial_as<uint16_t>(launch);
  return launch_partial_as<uint32_t>(launch);
}

void launch_take_shard(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const auto dim = static_cast<size_t>(launch.call->int_attr("dim"));
  int64_t inner = 1;
  for (size_t i = dim + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  const int64_t part = y.shape.at(dim), size = x.shape.at(dim);
  if (y.elements() == 0) return;
  const std::vector<DimRange> ranges =
      shard_ranges(launch.call->text_attr("axis"), size, (size + part - 1) / part, 0);
  const Range range{.coordinate = launch.operands.at(1).as<const int32_t>(),
                    .elements = y.elements(),
                    .row = part * inner,
                    .full_row = size * inner,
                    .head_tail = ranges.size() > 1};
  switch (dtype_bytes(y.dtype)) {
    case 2:
      return launch_as<uint16_t>(range, launch);
    case 4:
      return launch_as<uint32_t>(range, launch);
    default:
      return launch_as<uint64_t>(range, launch);
  }
}

}  // namespace weft::cuda
