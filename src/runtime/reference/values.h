// Tensors as vectors of double. A reference kernel reads its operands in full, computes in double,
// and rounds once when it writes its results.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/kernel.h"

namespace weft::reference {

using Values = std::vector<double>;

// All elements of a floating-point tensor.
Values read(const Tensor& tensor);

// All elements of an i32 tensor.
std::vector<int32_t> read_ints(const Tensor& tensor);

// Rounds to the tensor's dtype (bf16 and f16 through f32).
void write(const Tensor& tensor, const Values& values);

// Which elements dropout keeps, and by how much it scales them.
class DropoutMask {
 public:
  // `rng` = {seed low, seed high, step, first sample}, or that and {shard, shards}, or that and
  // {shard over cp, shards over cp}.
  DropoutMask(const std::vector<int32_t>& rng, double rate, int64_t stream);

  // Factor of element `element` of local sample `sample`: 0 or 1 / (1 - rate).
  double factor(int64_t sample, int64_t element, int64_t per_sample) const;

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t step_;
  int64_t first_sample_;
  int64_t shard_;
  int64_t shards_;
  int64_t context_shard_;
  int64_t context_shards_;
  double rate_;
};

}  // namespace weft::reference
