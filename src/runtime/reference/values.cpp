// Conversion between tensors and vectors of double, and dropout decisions.
#include "runtime/reference/values.h"

#include "base/error.h"
#include "base/half.h"
#include "base/philox.h"

namespace weft::reference {

Values read(const Tensor& tensor) {
  Values values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (tensor.dtype) {
      case DType::F64:
        values[i] = tensor.as<double>()[i];
        break;
      case DType::F32:
        values[i] = tensor.as<float>()[i];
        break;
      case DType::BF16:
        values[i] = f32_from_bf16(tensor.as<uint16_t>()[i]);
        break;
      case DType::F16:
        values[i] = f32_from_f16(tensor.as<uint16_t>()[i]);
        break;
      case DType::I32:
      case DType::I64:
        CHECK(false, "an integer tensor read as floating");
        break;
    }
  }
  return values;
}

std::vector<int32_t> read_ints(const Tensor& tensor) {
  CHECK(tensor.dtype == DType::I32, "a ", dtype_name(tensor.dtype), " tensor read as i32");
  const int32_t* first = tensor.as<int32_t>();
  return std::vector<int32_t>(first, first + tensor.elements());
}

void write(const Tensor& tensor, const Values& values) {
  CHECK(static_cast<int64_t>(values.size()) == tensor.elements(), values.size(), " values for ",
        to_string(tensor.shape));
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = static_cast<float>(values[i]);
    switch (tensor.dtype) {
      case DType::F64:
        tensor.as<double>()[i] = values[i];
        break;
      case DType::F32:
        tensor.as<float>()[i] = value;
        break;
      case DType::BF16:
        tensor.as<uint16_t>()[i] = bf16_from_f32(value);
        break;
      case DType::F16:
        tensor.as<uint16_t>()[i] = f16_from_f32(value);
        break;
      case DType::I32:
      case DType::I64:
        CHECK(false, "floating values written to an integer tensor");
        break;
    }
  }
}

DropoutMask::DropoutMask(const std::vector<int32_t>& rng, double rate, int64_t stream)
    : seed_(static_cast<uint64_t>(static_cast<uint32_t>(rng.at(1))) << 32 |
            static_cast<uint32_t>(rng.at(0))),
      stream_(static_cast<uint64_t>(stream)),
      step_(static_cast<uint32_t>(rng.at(2))),
      first_sample_(rng.at(3)),
      shard_(rng.size() > 4 ? rng.at(4) : 0),
      shards_(rng.size() > 4 ? rng.at(5) : 1),
      context_shard_(rng.size() > 6 ? rng.at(6) : 0),
      context_shards_(rng.size() > 6 ? rng.at(7) : 1),
      rate_(rate) {}

double DropoutMask::factor(int64_t sample, int64_t element, int64_t per_sample) const {
  const ContextShard shard{shards_ * per_sample, context_shards_, context_shard_};
  const int64_t global = (first_sample_ + sample) * shard.size * shard.shards +
                         shard.in_full(shard_ * per_sample + element);
  const float unit = random_unit(random_key(seed_, stream_), step_, static_cast<uint64_t>(global));
  return unit >= static_cast<float>(rate_) ? 1.0 / (1.0 - rate_) : 0.0;
}

}  // namespace weft::reference
