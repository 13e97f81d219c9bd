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
  // A random block gives four elements; the range may start and end inside one.
  for (int64_t block = first / 4; block * 4 < first + size; ++block) {
    const NormalBlock normals = normal_block(key, 0, static_cast<uint64_t>(block));
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t place = block * 4 + i - first;
      if (place < 0 || place >= size) continue;
      values[static_cast<size_t>(place)] = static_cast<float>(param.std * normals.value[i]);
    }
  }
}

}  // namespace weft
