// Chunks along time, element by element.
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
