// Checks sharding rules by running them: operands are sharded as the rule allows, the reference
// computes each shard, and the results are combined (concatenated, or summed if they are partial
// sums) and compared with the unsharded result. Sums in blocks (square_sum) have their own test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "graph/sharding.h"
#include "runtime/cpu/device.h"
#include "runtime/reference/kernels.h"
#include "support/user_error.h"

namespace weft {
namespace {

constexpr int64_t kMaxShards = 4;

// A dim of one operand of a call.
struct ShardedDim {
  size_t operand = 0;
  int64_t dim = 0;
};

// The dim of each operand with the same name in the rule as `sharded`, -1 where there is none.
std::vector<int64_t> dims_of_name(const Call& call, const ShardedDim& sharded) {
  const std::string name = dim_name(call, sharded.operand, sharded.dim);
  std::vector<int64_t> dims(call.operands.size(), -1);
  for (size_t i = 0; i < dims.size(); ++i) {
    for (int64_t dim = 0; dim < std::ssize(call.operands[i].shape); ++dim) {
      if (dim_name(call, i, dim) == name) dims[i] = dim;
    }
  }
  return dims;
}

std::vector<Placement> placements_of(const std::vector<int64_t>& dims) {
  std::vector<Placement> placements(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) placements[i] = {{PlacementKind::Sharded, "axis", dims[i]}};
  }
  return placements;
}

bool is_allowed(const Call& call, const std::vector<int64_t>& dims) {
  return user_error_of([&] { propagate(call, placements_of(dims)); }).empty();
}

// Capital letters name dims that must not be sharded.
bool must_be_full(const Call& call, const ShardedDim& sharded) {
  const std::string name = dim_name(call, sharded.operand, sharded.dim);
  return std::isupper(static_cast<unsigned char>(name[0])) != 0;
}

// The dim of each operand that is sharded together with `sharded`, -1 for none; nullopt where the
// rule needs the full dim. Operands that share a dim are sharded all or none.
std::optional<std::vector<int64_t>> sharded_dims(const Call& call, const ShardedDim& sharded) {
  const std::vector<int64_t> dims = dims_of_name(call, sharded);
  const bool full = must_be_full(call, sharded);
  EXPECT_EQ(is_allowed(call, dims), !full) << describe(call) << " along " << to_string(dims);
  for (size_t i = 0; i < dims.size(); ++i) {
    std::vector<int64_t> others = dims;
    others[i] = -1;
    const bool none = std::all_of(others.begin(), others.end(), [](int64_t d) { return d < 0; });
    if (dims[i] < 0 || none) continue;
    EXPECT_FALSE(is_allowed(call, others)) << describe(call) << " along " << to_string(others);
  }
  if (full) return std::nullopt;
  return dims;
}

// Shard `shard` of `shards` along a dim.
HostTensor slice(const HostTensor& tensor, int64_t dim, int64_t shard, int64_t shards) {
  TensorType type = tensor.type;
  const auto at = static_cast<size_t>(dim);
  type.shape[at] /= shards;
  HostTensor part(type);
  const Shape inner(type.shape.begin() + dim, type.shape.end());
  const auto run = static_cast<size_t>(count(inner) * dtype_bytes(type.dtype));
  const size_t runs = part.bytes.size() / std::max<size_t>(run, 1);
  for (size_t i = 0; i < runs; ++i) {
    const size_t from = (i * static_cast<size_t>(shards) + static_cast<size_t>(shard)) * run;
    std::memcpy(part.bytes.data() + i * run, tensor.bytes.data() + from, run);
  }
  return part;
}

// Run-time scalars that say where a rank's shard starts.
void shift_start(const Call& call, size_t operand, HostTensor& tensor, int64_t shard,
                 int64_t length) {
  const auto& specs = call.op->parsed().operands;
  const std::string& name = specs.at(std::min(operand, specs.size() - 1)).name;
  auto* values = reinterpret_cast<int32_t*>(tensor.bytes.data());
  const bool is_rng = tensor.type.dtype == DType::I32 && tensor.type.shape == Shape{4} &&
                      (name == "rng" || call.op->name() == "fused");
  if (is_rng) values[3] += static_cast<int32_t>(shard * length);
  if (name == "coordinate") values[0] += static_cast<int32_t>(shard);
}

struct ShardedRun {
  std::vector<std::vector<HostTensor>> results;  // by shard
};

ShardedRun run_shards(const Call& call, const std::vector<HostTensor>& inputs,
                      const std::vector<int64_t>& dims, int64_t shards) {
  const auto device = make_host_device({.threads = 1});
  ShardedRun run;
  for (int64_t shard = 0; shard < shards; ++shard) {
    Call local = call;
    std::vector<HostTensor> operands;
    int64_t length = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      operands.push_back(dims[i] < 0 ? inputs[i] : slice(inputs[i], dims[i], shard, shards));
      local.operands[i] = operands[i].type;
      if (dims[i] >= 0) length = operands[i].type.shape[static_cast<size_t>(dims[i])];
    }
    for (size_t i = 0; i < inputs.size(); ++i) shift_start(call, i, operands[i], shard, length);
    local.results.clear();
    local.results = local.op->infer(local);
    run.results.push_back(run_call(reference_kernels(), *device, local, operands));
  }
  return run;
}

void expect_concatenation(const HostTensor& full, const ShardedRun& run, size_t result, int64_t dim,
                          const std::string& where) {
  const auto shards = static_cast<int64_t>(run.results.size());
  for (int64_t shard = 0; shard < shards; ++shard) {
    EXPECT_TRUE(slice(full, dim, shard, shards).bytes ==
                run.results[static_cast<size_t>(shard)][result].bytes)
        << where << ": shard " << shard << " differs";
  }
}

// Each shard of a partial sum is rounded to the dtype, by at most half a unit of the largest.
void expect_sum(const HostTensor& full, const ShardedRun& run, size_t result,
                const std::string& where) {
  const std::vector<double> expected = full.values();
  std::vector<double> sum(expected.size(), 0);
  double largest = 0;
  for (const auto& results : run.results) {
    const std::vector<double> part = results[result].values();
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += part[i];
      largest = std::max(largest, std::fabs(part[i]));
    }
  }
  const DType dtype = full.type.dtype;
  const double unit = dtype == DType::BF16 ? 0x1p-8 : dtype == DType::F16 ? 0x1p-11 : 0x1p-24;
  const double allowed = static_cast<double>(run.results.size() + 1) * unit * largest * 2;
  for (size_t i = 0; i < sum.size(); ++i) {
    ASSERT_NEAR(sum[i], expected[i], allowed) << where << ": element " << i;
  }
}

// Decay by position needs to know where the shard starts: the last operand, which is optional.
bool lacks_position(const Call& call) {
  const Signature& signature = call.op->parsed();
  const bool has_coordinate =
      !signature.operands.empty() && signature.operands.back().name == "coordinate";
  return has_coordinate && call.operands.size() < signature.operands.size() &&
         !call.ints_attr("decayed").empty();
}

// The sample with the sharded dims long enough for all shards.
Call enlarged(Call call, const std::vector<int64_t>& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) call.operands[i].shape[static_cast<size_t>(dims[i])] *= kMaxShards;
  }
  call.results.clear();
  call.results = call.op->infer(call);
  return call;
}

void compare(const Call& call, const std::vector<int64_t>& dims) {
  const std::vector<Placement> placed = propagate(call, placements_of(dims));
  const std::vector<HostTensor> inputs = make_inputs(call, 0);
  const auto device = make_host_device({.threads = 1});
  const auto full = run_call(reference_kernels(), *device, call, inputs);
  for (int64_t shards = 2; shards <= kMaxShards; shards *= 2) {
    const ShardedRun run = run_shards(call, inputs, dims, shards);
    for (size_t r = 0; r < full.size(); ++r) {
      const std::string where = cat(describe(call), " sharded along ", to_string(dims), ", ",
                                    shards, " shards, result ", r);
      const AxisPlacement& found = placed[r].at(0);
      if (found.kind == PlacementKind::Partial) {
        expect_sum(full[r], run, r, where);
      } else {
        expect_concatenation(full[r], run, r, found.dim, where);
      }
    }
  }
}

class ShardingTest : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(ShardingTest, ShardsMakeTheFullTensor) {
  size_t compared = 0;
  for (const Call& sample : parse_samples(*GetParam())) {
    if (!is_small(sample) || lacks_position(sample)) continue;
    for (size_t operand = 0; operand < sample.operands.size(); ++operand) {
      for (size_t dim = 0; dim < sample.operands[operand].shape.size(); ++dim) {
        const auto dims = sharded_dims(sample, {operand, static_cast<int64_t>(dim)});
        if (!dims) continue;
        compare(enlarged(sample, *dims), *dims);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0u);
}

// Whether the rule allows a dim of the call to be sharded: none of scalars, nor of operands that
// are summed in blocks.
bool can_be_sharded(const Call& call) {
  const ShardingRule rule = sharding_rule(call);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    for (int64_t dim = 0; dim < std::ssize(call.operands[i].shape); ++dim) {
      if (!rule.operands[i].added && !must_be_full(call, {i, dim})) return true;
    }
  }
  return false;
}

std::vector<const OpDef*> sharded_ops() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : computed_ops()) {
    const std::vector<Call> samples = parse_samples(*op);
    if (std::any_of(samples.begin(), samples.end(), can_be_sharded)) ops.push_back(op);
  }
  return ops;
}

INSTANTIATE_TEST_SUITE_P(AllOps, ShardingTest, ::testing::ValuesIn(sharded_ops()),
                         [](const auto& test) { return std::string(test.param->name()); });

}  // namespace
}  // namespace weft
