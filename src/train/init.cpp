#include "train/init.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "base/philox.h"

namespace weft {

void init_param(const ParamInfo& param, uint64_t seed, int64_t first, std::span<float> values) {
  const int64_t size = static_cast<int64_t>(values.size());
  CHECK(first >= 0 && first + size <= count(param.shape), param.name, ": elements ", first, " to ",
        first + size);
  if (param.init != Init::Normal) {
    std::fill(values.begin(), values.end(), param.init == Init::Ones ? 1.0f : 0.0f);
    return;
  }
  const PhiloxKey key = random_key(seed, hash_text(cat(param.name, ".init")));
  for (int64_t i = 0; i < size; ++i) {
    const double normal = random_normal(key, 0, static_cast<uint64_t>(first + i));
    values[static_cast<size_t>(i)] = static_cast<float>(param.std * normal);
  }
}

}  // namespace weft
