// Random operands by name.
#include "conformance/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/exact_sum.h"
#include "runtime/cpu/device.h"
#include "runtime/reference/kernels.h"
#include "support/random_normal.h"

namespace weft {
namespace {

// An integer attribute, 0 if the op has none of that name.
int64_t int_attr_or_0(const Call& call, std::string_view name) {
  for (const AttrSpec& spec : call.op->parsed().attrs) {
    if (spec.name == name) return call.int_attr(name);
  }
  return 0;
}

bool is_vocabulary_shard(const Call& call) {
  return !call.op->traits.update && call.op->parsed().operands.back().name == "coordinate" &&
         call.has_operand("coordinate");
}

// Upper limit of an index: rows of the table, the vocabulary size, or the attribute `rows`; three
// times as many if others have the other shards.
int64_t index_limit(const Call& call, std::string_view operand) {
  if (operand == "targets") {
    if (is_vocabulary_shard(call)) return call.int_attr("classes");
    for (const TensorType& type : call.operands) {
      if (is_floating(type.dtype) && !type.shape.empty()) return type.shape.back();
    }
  }
  const int64_t attr = int_attr_or_0(call, "rows");
  const int64_t rows = attr > 0 ? attr : call.type("w").shape.at(0);
  return is_vocabulary_shard(call) ? 3 * rows : rows;
}

// Statistics of shards of logits; in round 2 the last of several shards is all padding. Signs are
// such that no loss is the difference of large numbers.
double shard_statistic(const TensorType& stats, size_t i, double z, uint64_t round) {
  const int64_t shard = static_cast<int64_t>(i) / (stats.elements() / stats.shape.at(0));
  if (round == 2 && shard > 0 && shard + 1 == stats.shape[0]) {
    return i % 3 == 0 ? -std::numeric_limits<double>::infinity() : 0;
  }
  if (i % 3 == 0) return std::fabs(z);
  return i % 3 == 1 ? std::fabs(z) + 0.5 : -std::fabs(z);
}

// Element i of an operand, derived from a standard normal number z. It depends on the operand name,
// and for `acc` also on the op: it is a gradient in one and the words of an integer in another.
double element(const Call& call, const std::string& name, size_t i, double z, uint64_t round) {
  const int64_t kind = static_cast<int64_t>(std::fabs(z) * 1000);
  if (name == "rng") {
    return std::vector<double>{17.0 + static_cast<double>(round), 3, 5, 2, 1, 3, 2, 4}.at(i);
  }
  if (name == "ids") return static_cast<double>(kind % index_limit(call, name));
  if (name == "targets") return static_cast<double>(kind % (index_limit(call, name) + 1) - 1);
  if (name == "micro") return round == 2 ? 3 : static_cast<double>(round);
  if (name == "counts") return static_cast<double>(kind % 3 == 0 ? 0 : kind % 50);
  if (name == "count") return 3 + static_cast<double>(round);
  if (name == "norm") return round == 2 ? std::numeric_limits<double>::infinity() : std::fabs(z);
  if (name == "acc" && call.op->name() == "norm") {
    return i + 1 < static_cast<size_t>(kExactSumWords) ? static_cast<double>(kind) * 1e9
                                                       : round / 2;
  }
  if (name == "scale") return 4096;
  if (name == "good") return 2 - static_cast<double>(round);
  if (name == "coordinate") return static_cast<double>(round);
  if (name == "stats") return shard_statistic(call.type(name), i, z, round);
  if (name == "lr") return 0.01;
  if (name == "coefficient") return round == 2 ? 0 : 0.75;
  if (name == "v") return z * z;
  return z;
}

// Positions of tokens in their documents, which are short in the first sample and longer in later
// ones.
std::vector<double> document_positions(const TensorType& type, PhiloxKey key) {
  const int64_t time = type.shape.at(1);
  std::vector<double> positions;
  for (int64_t i = 0; i < type.elements(); ++i) {
    const int64_t sample = i / time;
    const double draw = std::fabs(random_normal(key, 0, static_cast<uint64_t>(i)));
    const bool starts = i % time == 0 || draw * std::pow(8.0, static_cast<double>(sample)) < 0.3;
    positions.push_back(starts ? 0 : positions.back() + 1);
  }
  return positions;
}

// Different experts for the choices of a token. The last expert is chosen by none if there are more
// than two others per choice.
std::vector<double> expert_choices(const Call& call, const TensorType& type, PhiloxKey key) {
  const bool knows_logits = call.op->name() == "router_grad";
  const int64_t experts = knows_logits ? row_length(call.type("logits")) : call.int_attr("experts");
  const int64_t choices = row_length(type);
  const int64_t open = experts > 2 * choices ? experts - 1 : experts;
  std::vector<double> index;
  for (int64_t i = 0; i < type.elements(); ++i) {
    const double draw = std::fabs(random_normal(key, 0, static_cast<uint64_t>(i / choices)));
    index.push_back(static_cast<double>((static_cast<int64_t>(draw * 1000) + i % choices) % open));
  }
  return index;
}

// Rows of the choices of every token: any order, no row twice, and -1 where there are too few.
std::vector<double> row_places(const Call& call, const TensorType& type, PhiloxKey key) {
  const bool makes_rows = call.op->name().starts_with("dispatch");
  const Shape half = {1, 1, type.elements() / 2};  // of what lost_rows counts
  const Shape& rows = call.op->name() == "lost_rows" ? half
                      : makes_rows                   ? call.results.at(0).shape
                                                     : call.type("rows").shape;
  const int64_t places = rows[1] * rows[2], choices = type.elements() / rows[0];
  std::vector<double> at;
  for (int64_t source = 0; source < rows[0]; ++source) {
    std::vector<std::pair<double, int64_t>> drawn;
    for (int64_t i = 0; i < std::max(places, choices); ++i) {
      drawn.emplace_back(random_normal(key, 0, static_cast<uint64_t>(source * 7919 + i)), i);
    }
    std::sort(drawn.begin(), drawn.end());
    for (int64_t i = 0; i < choices; ++i) {
      const int64_t place = drawn[static_cast<size_t>(i)].second;
      at.push_back(place < places ? static_cast<double>(place) : -1);
    }
  }
  return at;
}

// Where the rows of each expert begin and end: in order, some empty, not all slots in use.
std::vector<double> row_offsets(const Call& call, const TensorType& type, PhiloxKey key) {
  const int64_t slots = call.type(0).shape.at(2), entries = row_length(type);
  std::vector<double> offsets;
  for (int64_t block = 0; block < row_count(type); ++block) {
    std::vector<double> ends = {0};
    for (int64_t i = 1; i < entries; ++i) {
      const auto at = static_cast<uint64_t>(block * entries + i);
      const auto draw = static_cast<int64_t>(std::fabs(random_normal(key, 0, at)) * 1000);
      ends.push_back(i % 3 == 2 ? ends.back() : static_cast<double>(draw % (slots + 1)));
    }
    std::sort(ends.begin(), ends.end());
    offsets.insert(offsets.end(), ends.begin(), ends.end());
  }
  return offsets;
}

// Positions of the queries of shard `index` over cp if each sample is one document.
std::vector<double> context_positions(const Call& call, uint64_t index) {
  const Shape& q = call.type("q").shape;
  const int64_t blocks = call.int_attr("blocks");
  const int64_t shards = blocks > 1 ? blocks : call.type("kv").shape[1] / q[1];
  const ContextShard shard{q[1], shards, static_cast<int64_t>(index)};
  std::vector<double> positions;
  for (int64_t i = 0; i < q[0] * q[1]; ++i) {
    positions.push_back(static_cast<double>(shard.in_full(i % q[1])));
  }
  return positions;
}

// The values of an operand that must fit together.
using IntegerValues = std::vector<double> (*)(const Call&, const TensorType&, PhiloxKey);
IntegerValues integer_values(const std::string& name) {
  if (name == "index") return expert_choices;
  if (name == "at") return row_places;
  return name == "offsets" ? row_offsets : nullptr;
}

const std::string& name_of(const Call& call, size_t operand) {
  const auto& specs = call.op->parsed().operands;
  return specs.at(std::min(operand, specs.size() - 1)).name;
}

// The op whose gradient `call` is, or nullptr.
const OpDef* forward_op(const Call& call) {
  const std::string_view name = call.op->name();
  const size_t grad = name.find("_grad");  // layer_norm_grad, layer_norm_grad_sums
  return grad != std::string_view::npos ? find_op(name.substr(0, grad)) : nullptr;
}

// Replaces operands that are results of the forward op by the reference's values.
void fill_statistics(const Call& call, std::vector<HostTensor>& inputs) {
  const OpDef* op = forward_op(call);
  if (op == nullptr) return;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < inputs.size(); ++i) places[name_of(call, i)] = i;
  Call forward{.op = op, .operands = {}, .results = {}, .attrs = {}};
  std::vector<HostTensor> operands;
  for (const OperandSpec& spec : op->parsed().operands) {
    if (!places.contains(spec.name)) continue;
    operands.push_back(inputs[places[spec.name]]);
    forward.operands.push_back(operands.back().type);
    // Targets of other shards would be outside the logits; no statistic depends on the target.
    const bool elsewhere = spec.name == "targets" && is_vocabulary_shard(call);
    if (elsewhere) operands.back() = HostTensor(operands.back().type);
  }
  for (const AttrSpec& spec : op->parsed().attrs) {
    const auto& own = call.op->parsed().attrs;
    const bool given = std::any_of(own.begin(), own.end(),
                                   [&](const AttrSpec& attr) { return attr.name == spec.name; });
    if (!given && spec.required) return;  // any statistics will do
    forward.attrs.push_back(given ? call.attr(spec.name) : spec.default_value);
  }
  bool wanted = false;
  for (const OperandSpec& result : op->parsed().results) {
    wanted = wanted || places.contains(result.name);
  }
  if (!wanted) return;
  forward.results = op->infer(forward);
  const auto device = make_host_device({.threads = 1});
  const auto results = run_call(reference_kernels(), *device, forward, operands);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto place = places.find(op->parsed().results[i].name);
    if (place == places.end()) continue;
    HostTensor& input = inputs[place->second];
    input = HostTensor(input.type, results[i].values());
  }
}

}  // namespace

HostTensor random_tensor(const TensorType& type, uint64_t seed) {
  const PhiloxKey key = random_key(seed, 0);
  std::vector<double> values(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal(key, 0, i);
  return HostTensor(type, values);
}

std::vector<HostTensor> make_inputs(const Call& call, uint64_t round) {
  std::vector<HostTensor> inputs;
  for (size_t operand = 0; operand < call.operands.size(); ++operand) {
    const TensorType& type = call.operands[operand];
    const PhiloxKey key = random_key(round, operand);
    if (name_of(call, operand) == "positions") {
      const bool one_document = round == 1 && call.op->name().starts_with("context_attention");
      inputs.emplace_back(
          type, one_document ? context_positions(call, round) : document_positions(type, key));
      continue;
    }
    if (const IntegerValues values = integer_values(name_of(call, operand))) {
      inputs.emplace_back(type, values(call, type, key));
      continue;
    }
    std::vector<double> values(static_cast<size_t>(type.elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = element(call, name_of(call, operand), i, random_normal(key, 0, i), round);
    }
    inputs.emplace_back(type, values);
  }
  fill_statistics(call, inputs);
  return inputs;
}

}  // namespace weft
