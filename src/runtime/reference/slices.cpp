// Chunks along time and shards along a dim, element by element.
#include <algorithm>

#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

// Elements of one sample.
int64_t per_sample(const Tensor& tensor) {
  return tensor.elements() / tensor.shape.at(0);
}

}  // namespace

void split_time(const Launch& launch) {
  const Tensor& x = launch.operands[0];
  const Tensor& y = launch.results[0];
  const int64_t first = launch.call->int_attr("index") * per_sample(y);
  const auto chunk = [&](const auto& all) {
    std::decay_t<decltype(all)> part;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const int64_t at = i / per_sample(y) * per_sample(x) + first + i % per_sample(y);
      part.push_back(all[static_cast<size_t>(at)]);
    }
    return part;
  };
  if (is_floating(x.dtype)) {
    write(y, chunk(read(x)));
    return;
  }
  const std::vector<int32_t> part = chunk(read_ints(x));
  std::copy(part.begin(), part.end(), y.as<int32_t>());
}

void take_shard(const Launch& launch) {
  const Tensor& x = launch.operands[0];
  const Tensor& y = launch.results[0];
  const auto dim = static_cast<size_t>(launch.call->int_attr("dim"));
  int64_t inner = 1;
  for (size_t i = dim + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  const int64_t part = y.shape.at(dim), size = x.shape.at(dim);
  const int64_t first = read_ints(launch.operands[1]).at(0) * part;
  const auto range = [&](const auto& all) {
    std::decay_t<decltype(all)> taken;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const int64_t at = first + i / inner % part;
      const int64_t from = (i / inner / part * size + at) * inner + i % inner;
      taken.push_back(at < size ? all[static_cast<size_t>(from)] : 0);
    }
    return taken;
  };
  if (is_floating(x.dtype)) {
    write(y, range(read(x)));
    return;
  }
  const std::vector<int32_t> taken = range(read_ints(x));
  std::copy(taken.begin(), taken.end(), y.as<int32_t>());
}

void to_partial(const Launch& launch) {
  const bool counts = read_ints(launch.operands[1]).at(0) == 0;
  Values y = read(launch.operands[0]);
  if (!counts) std::fill(y.begin(), y.end(), 0.0);
  write(launch.results[0], y);
}

void concat_time(const Launch& launch) {
  const Tensor& y = launch.results[0];
  Values full(static_cast<size_t>(y.elements()));
  for (size_t p = 0; p < launch.operands.size(); ++p) {
    const Tensor& x = launch.operands[p];
    const Values chunk = read(x);
    const int64_t first = static_cast<int64_t>(p) * per_sample(x);
    for (int64_t i = 0; i < x.elements(); ++i) {
      const int64_t at = i / per_sample(x) * per_sample(y) + first + i % per_sample(x);
      full[static_cast<size_t>(at)] = chunk[static_cast<size_t>(i)];
    }
  }
  write(y, full);
}

}  // namespace weft::reference
