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
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"
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

// The dim of each operand that the rule shards with `sharded`, -1 where there is none. The first
// dim whose shards it counts stands for one that counts shards.
std::vector<int64_t> dims_of_name(const Call& call, const ShardedDim& sharded) {
  const RuleDims rule = rule_dims(call);
  RuleDim dim = rule.operands.at(sharded.operand).at(static_cast<size_t>(sharded.dim));
  if (!dim.counted.empty()) dim = {dim.counted[0], 0, ""};
  std::vector<int64_t> dims;
  for (const auto& operand : rule.operands) dims.push_back(find_dim(operand, dim));
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

// The parts of a dim of an operand or result in the rule; one if it is not packed.
std::vector<int64_t> parts_of(const ShardingTerm& term, const TensorType& type, int64_t dim) {
  const int64_t letter = dim - (std::ssize(type.shape) - std::ssize(term.dims));
  if (letter >= 0 && !term.parts[static_cast<size_t>(letter)].empty()) {
    return term.parts[static_cast<size_t>(letter)];
  }
  return {type.shape[static_cast<size_t>(dim)]};
}

// Which of the shards a rank has, and how long they are. Over cp they are two ranges.
struct Shard {
  int64_t index = 0, count = 1, length = 0;
  std::string axis = "axis";
};

// The shard of every part of a dim.
HostTensor slice(const HostTensor& tensor, int64_t dim, const std::vector<int64_t>& parts,
                 const Shard& shard) {
  TensorType type = tensor.type;
  const auto at = static_cast<size_t>(dim);
  const int64_t full = type.shape[at];
  type.shape[at] /= shard.count;
  HostTensor shard_tensor(type);
  const Shape inside(type.shape.begin() + dim + 1, type.shape.end());
  const int64_t inner = count(inside) * dtype_bytes(type.dtype);
  const int64_t outer = std::ssize(tensor.bytes) / std::max<int64_t>(full * inner, 1);
  char* to = shard_tensor.bytes.data();
  for (int64_t i = 0; i < outer; ++i) {
    int64_t begin = i * full;
    for (const int64_t part : parts) {
      for (const DimRange& range : shard_ranges(shard.axis, part, shard.count, shard.index)) {
        const auto bytes = static_cast<size_t>(range.size * inner);
        std::memcpy(to, tensor.bytes.data() + (begin + range.begin) * inner, bytes);
        to += bytes;
      }
      begin += part;
    }
  }
  return shard_tensor;
}

// Whether a dim is the queries that ranks share over cp.
bool is_context(const Call& call, const ShardedDim& sharded) {
  return call.op->name().starts_with("context_attention") &&
         dim_name(call, sharded.operand, sharded.dim) == "s";
}

bool is_context(const Call& call, const std::vector<int64_t>& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) return is_context(call, ShardedDim{i, dims[i]});
  }
  return false;
}

// Whether the operand `coordinate` counts the shards of this dim: of a flat tensor, or of what the
// op must locate.
bool is_counted(const Call& call, const ShardedDim& sharded) {
  if (call.op->name().starts_with("context_attention")) return is_context(call, sharded);
  return call.op->traits.update ||
         dim_name(call, sharded.operand, sharded.dim) == std::string(1, call.op->located);
}

bool is_counted(const Call& call, const std::vector<int64_t>& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) return is_counted(call, ShardedDim{i, dims[i]});
  }
  return false;
}

// Whether random numbers are keyed by the shard of this dim, not by the index in it.
bool is_located(const Call& call, const std::vector<int64_t>& dims) {
  const std::string located(1, call.op->located);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) return dim_name(call, i, dims[i]) == located;
  }
  return false;
}

bool is_rng(const Call& call, size_t operand) {
  return operand_name(call, operand) == "rng";
}

// The random state of one of the shards into which the tensors of `rng` are divided; they may be
// shards themselves.
HostTensor sharded_rng(const HostTensor& rng, int64_t shard, int64_t shards) {
  std::vector<double> words = rng.values();
  const double outer = words.size() > 4 ? words[4] : 0;
  const double outer_shards = words.size() > 4 ? words[5] : 1;
  words.resize(std::max<size_t>(words.size(), 6));
  words[4] = outer * static_cast<double>(shards) + static_cast<double>(shard);
  words[5] = outer_shards * static_cast<double>(shards);
  return HostTensor(TensorType{DType::I32, {std::ssize(words)}, {}}, words);
}

// Run-time values that say where a rank's shard starts.
void shift_start(const Call& call, const std::vector<int64_t>& dims, size_t operand,
                 const Shard& shard, HostTensor& tensor) {
  auto* values = reinterpret_cast<int32_t*>(tensor.bytes.data());
  if (operand_name(call, operand) == "coordinate" && is_counted(call, dims)) {
    values[0] += static_cast<int32_t>(shard.index);
  }
  if (!is_rng(call, operand)) return;
  if (is_located(call, dims)) {
    tensor = sharded_rng(tensor, shard.index, shard.count);
  } else if (!is_context(call, dims)) {
    values[3] += static_cast<int32_t>(shard.index * shard.length);
  }
}

struct ShardedRun {
  std::vector<std::vector<HostTensor>> results;  // by shard
};

ShardedRun run_shards(const Call& call, const std::vector<HostTensor>& inputs,
                      const std::vector<int64_t>& dims, int64_t shards) {
  const auto device = make_host_device({.threads = 1});
  const ShardingRule rule = sharding_rule(call);
  ShardedRun run;
  for (int64_t shard = 0; shard < shards; ++shard) {
    Call local = call;
    std::vector<HostTensor> operands;
    Shard place{.index = shard, .count = shards};
    if (is_context(call, dims)) place.axis = "cp";
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (dims[i] < 0) {
        operands.push_back(inputs[i]);
      } else {
        const auto parts = parts_of(rule.operands[i], call.operands[i], dims[i]);
        operands.push_back(slice(inputs[i], dims[i], parts, place));
      }
      if (dims[i] >= 0) place.length = operands[i].type.shape[static_cast<size_t>(dims[i])];
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      shift_start(call, dims, i, place, operands[i]);
      local.operands[i] = operands[i].type;
    }
    if (call.op->localize != nullptr) call.op->localize(call, local);
    local.results.clear();
    local.results = local.op->infer(local);
    run.results.push_back(run_call(reference_kernels(), *device, local, operands));
  }
  return run;
}

// `parts` are those of the sharded dim of the result.
void expect_concatenation(const HostTensor& full, const ShardedRun& run, size_t result,
                          const std::vector<int64_t>& parts, int64_t dim, const std::string& axis,
                          const std::string& where) {
  const auto shards = static_cast<int64_t>(run.results.size());
  for (int64_t shard = 0; shard < shards; ++shard) {
    const Shard place{.index = shard, .count = shards, .axis = axis};
    EXPECT_TRUE(slice(full, dim, parts, place).bytes ==
                run.results[static_cast<size_t>(shard)][result].bytes)
        << where << ": shard " << shard << " differs";
  }
}

// Each shard of a partial sum is rounded to the dtype, by at most half a unit of the largest. What
// no shard writes stays NaN.
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
    if (std::isnan(expected[i]) && std::isnan(sum[i])) continue;
    ASSERT_NEAR(sum[i], expected[i], allowed) << where << ": element " << i;
  }
}

bool has_attr(const Call& call, std::string_view name) {
  const auto& attrs = call.op->parsed().attrs;
  return std::any_of(attrs.begin(), attrs.end(),
                     [&](const AttrSpec& attr) { return attr.name == name; });
}

// Decay by position and shards of the vocabulary need to know where the shard starts: the last
// operand, which is optional.
bool lacks_position(const Call& call, const ShardedDim& sharded) {
  const Signature& signature = call.op->parsed();
  const bool has_coordinate =
      !signature.operands.empty() && signature.operands.back().name == "coordinate";
  if (!has_coordinate || call.operands.size() == signature.operands.size()) return false;
  const bool anywhere = call.op->traits.update && call.ints_attr("decayed").empty();
  return is_counted(call, sharded) && !anywhere;
}

// Whether a result has an element per shard, so that one kernel cannot compute it; that is covered
// by unit/runtime/vocabulary_test.cpp.
bool lists_shards(const Call& call, const ShardedDim& sharded) {
  return has_attr(call, "shards") && dim_name(call, sharded.operand, sharded.dim) == "v";
}

// Whether the call is already one of a shard over cp, with one block of the keys: ring_test.cpp
// adds the blocks up.
bool has_one_block(const Call& call, const ShardedDim& sharded) {
  return has_attr(call, "blocks") && call.int_attr("blocks") > 1 && is_context(call, sharded);
}

// The sample with the sharded dims long enough for all shards.
Call enlarged(Call call, const std::vector<int64_t>& dims) {
  const auto sharded = std::find_if(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; });
  const bool by_head = dim_name(call, static_cast<size_t>(sharded - dims.begin()), *sharded) == "h";
  for (const std::string_view name : {"heads", "kv_heads"}) {
    if (!by_head || !has_attr(call, name)) continue;
    Attr& heads = call.attrs.at(call.op->parsed().attr_index(name));
    heads = std::get<int64_t>(heads) * kMaxShards;
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) call.operands[i].shape[static_cast<size_t>(dims[i])] *= kMaxShards;
  }
  if (has_attr(call, "classes")) {
    Attr& classes = call.attrs.at(call.op->parsed().attr_index("classes"));
    classes = std::get<int64_t>(classes) * kMaxShards;
  }
  call.results.clear();
  call.results = call.op->infer(call);
  return call;
}

// The call on full tensors that does what the shards do: chunks along time are taken from every
// shard of it, and every shard of the tokens is a source of rows.
Call shards_at_once(Call call, const std::vector<int64_t>& dims, int64_t shards) {
  const bool by_time = call.op == &kSplitTime || call.op == &kConcatTime;
  const bool has_sources = has_attr(call, "sources") && (dims[0] == 0 || dims[0] == 1);
  if (by_time ? dims[0] != 1 : !has_sources) return call;
  const std::string_view name = by_time ? "shards" : "sources";
  Attr& attr = call.attrs.at(call.op->parsed().attr_index(name));
  attr = std::get<int64_t>(attr) * shards;
  call.results.clear();
  call.results = call.op->infer(call);
  return call;
}

// Sources are contiguous tokens: shards of the time are, only if there is one sample.
bool mixes_sources(const Call& call, const ShardedDim& sharded) {
  const bool by_time = dim_name(call, sharded.operand, sharded.dim) == "s";
  const bool has_rows = has_attr(call, "sources") || call.op->name().starts_with("combine");
  return has_rows && by_time && call.operands.back().shape[0] > 1;
}

void compare(const Call& call, const std::vector<int64_t>& dims) {
  const std::vector<Placement> placed = propagate(call, placements_of(dims));
  const ShardingRule rule = sharding_rule(call);
  const std::vector<HostTensor> inputs = make_inputs(call, 0);
  const auto device = make_host_device({.threads = 1});
  for (int64_t shards = 2; shards <= kMaxShards; shards *= 2) {
    const Call at_once = shards_at_once(call, dims, shards);
    const auto full = run_call(reference_kernels(), *device, at_once, inputs);
    const ShardedRun run = run_shards(call, inputs, dims, shards);
    for (size_t r = 0; r < full.size(); ++r) {
      const std::string where = cat(describe(call), " sharded along ", to_string(dims), ", ",
                                    shards, " shards, result ", r);
      const AxisPlacement& found = placed[r].at(0);
      if (found.kind == PlacementKind::Partial) {
        expect_sum(full[r], run, r, where);
      } else {
        const auto parts = parts_of(rule.results[r], at_once.results[r], found.dim);
        const std::string axis = is_context(call, dims) ? "cp" : "axis";
        expect_concatenation(full[r], run, r, parts, found.dim, axis, where);
      }
    }
  }
}

class ShardingTest : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(ShardingTest, ShardsMakeTheFullTensor) {
  size_t compared = 0;
  for (const Call& sample : parse_samples(*GetParam())) {
    if (!is_small(sample)) continue;
    for (size_t operand = 0; operand < sample.operands.size(); ++operand) {
      for (size_t dim = 0; dim < sample.operands[operand].shape.size(); ++dim) {
        const ShardedDim sharded{operand, static_cast<int64_t>(dim)};
        const auto dims = sharded_dims(sample, sharded);
        if (!dims || lacks_position(sample, sharded) || lists_shards(sample, sharded)) continue;
        if (has_one_block(sample, sharded) || mixes_sources(sample, sharded)) continue;
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
