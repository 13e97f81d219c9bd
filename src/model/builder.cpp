#include "model/builder.h"

#include "base/hash.h"
#include "graph/dims.h"
#include "graph/module_path.h"
#include "graph/names.h"
#include "graph/ops/ops.h"

namespace weft {
namespace {

std::string graph_name(BuildMode mode) {
  switch (mode) {
    case BuildMode::Train:
      return "train";
    case BuildMode::Eval:
      return "eval";
    case BuildMode::Decode:
      return "decode";
  }
  CHECK(false, "build mode ", static_cast<int>(mode));
}

// "wqkv.weight" -> "wqkv.w", "weight" -> "w".
std::string short_param(std::string_view name) {
  const size_t dot = name.rfind('.');
  const size_t last = dot == std::string_view::npos ? 0 : dot + 1;
  return std::string(name.substr(0, last + 1));
}

}  // namespace

ModelBuilder::ModelBuilder(const ModelSpec& spec, const BuildOptions& options)
    : graph_(graph_name(options.mode)),
      builder_(graph_),
      options_(options),
      dropout_(options.mode == BuildMode::Train ? spec.dropout : 0),
      heads_(spec.n_heads),
      kv_heads_(spec.n_kv_heads) {
  const Shape rows = {options.batch, options.seq_len};
  tokens_ = input(names::kTokens, DType::I32, rows);
  if (options.documents || options.positions) {
    positions_ = input(names::kPositions, DType::I32, rows);
  }
  if (dropout_ > 0) rng_ = input(names::kRng, DType::I32, {4});
}

void ModelBuilder::enter(std::string path) {
  builder_.set_path(std::move(path));
}

Value* ModelBuilder::param(ParamInfo info) {
  const NodeOptions options = {
      .name = value_name(short_param(info.name)), .path = builder_.path(), .dims = info.dims};
  CHECK(info.dims.size() == info.shape.size(), info.name, ": ", info.dims.size(), " dims named");
  info.name = builder_.path() + "." + info.name;
  Node* node =
      graph_.insert_source(nullptr, kParam, info.name, {DType::F32, info.shape, {}}, options);
  params_.push_back(std::move(info));
  return node->result();
}

Value* ModelBuilder::add(const OpDef& op, std::vector<Value*> operands,
                         std::initializer_list<NamedAttr> attrs, std::string_view name) {
  return builder_.add(op, std::move(operands), attrs, value_name(name))->result();
}

std::vector<Value*> ModelBuilder::add_all(const OpDef& op, std::vector<Value*> operands,
                                          std::initializer_list<NamedAttr> attrs,
                                          std::string_view name) {
  Node* node = builder_.add(op, std::move(operands), attrs, value_name(name));
  std::vector<Value*> results;
  for (const auto& value : node->results) results.push_back(value.get());
  return results;
}

void ModelBuilder::add_router_loss(Value* logits, Value* index, bool sigmoid) {
  const auto [aux, z] = options_.router_losses;
  if (options_.mode != BuildMode::Train || (aux == 0 && z == 0)) return;
  Value* counts = add(kExpertCounts, {index}, {{"experts", row_length(logits->type)}}, "counts");
  router_losses_.push_back(add(kRouterLoss, {logits, counts, count()},
                               {{"aux", aux}, {"z", z}, {"sigmoid", sigmoid}}, "loss"));
}

std::string ModelBuilder::qkv_dim(int64_t q, int64_t kv) const {
  return options_.kv_repeats > 1 ? std::string(dims::kHeadsToRepeat)
                                 : dims::packed(dims::kHeads, {q, kv, kv});
}

Value* ModelBuilder::repeat_kv(Value* wqkv) {
  if (options_.kv_repeats == 1) return wqkv;
  return add(kRepeatKv, {wqkv},
             {{"heads", heads_}, {"kv_heads", kv_heads_}, {"repeats", options_.kv_repeats}},
             "wqkv.repeated");
}

Value* ModelBuilder::attention(Value* qkv, const AttentionOptions& options) {
  std::vector<Value*> operands = {qkv};
  if (options_.documents) operands.push_back(positions_);
  if (rng_ != nullptr) operands.push_back(rng_);
  const int64_t drawn = rng_ != nullptr ? stream("probabilities") : 0;
  // A chunk that no sequence exceeds is none.
  const int64_t chunk = options.chunk < options_.seq_len ? options.chunk : 0;
  return add(options_.documents ? kDocumentAttention : kAttention, std::move(operands),
             {{"heads", heads_},
              {"kv_heads", kv_heads()},
              {"value_dim", options.value_dim},
              {"scale", options.scale},
              {"chunk", chunk},
              {"dropout", dropout_},
              {"stream", drawn}},
             "mix");
}

std::vector<Value*> ModelBuilder::split_columns(Value* x, const std::vector<Columns>& parts) {
  std::vector<int64_t> widths;
  std::vector<std::string> names;
  for (const Columns& part : parts) {
    widths.push_back(part.width);
    names.push_back(value_name(part.name));
  }
  Node* node = builder_.add(kSplitColumns, {x}, {{"widths", widths}}, names);
  std::vector<Value*> values;
  for (const auto& result : node->results) values.push_back(result.get());
  return values;
}

Value* ModelBuilder::dropout(Value* x) {
  if (rng_ == nullptr) return x;
  return add(kDropout, {x, rng_}, {{"rate", dropout_}, {"stream", stream("dropout")}}, "dropout");
}

int64_t ModelBuilder::stream(std::string_view name) const {
  const uint64_t hash = hash_text(cat(builder_.path(), ".", name));
  return static_cast<int64_t>(hash & 0x7fffffffffffffff);
}

BuiltModel ModelBuilder::finish(Value* logits) {
  if (options_.mode == BuildMode::Decode) {
    graph_.add_output({OutputRole::Logits}, logits);
  } else {
    enter("");
    Value* targets = input(names::kTargets, DType::I32, {options_.batch, options_.seq_len});
    Value* loss = add(kCrossEntropy, {logits, targets, count()}, {}, names::kLoss);
    for (Value* router : router_losses_) {
      loss = add(kAdd, {loss, router}, {}, cat(names::kLoss, ".sum"));
    }
    graph_.add_output({OutputRole::Loss}, loss);
    if (options_.mode == BuildMode::Train && !choices_.empty()) add_counts();
  }
  return {std::move(graph_), std::move(params_)};
}

void ModelBuilder::add_counts() {
  std::vector<Value*> chosen, placed;
  for (const Choices& layer : choices_) {
    chosen.push_back(layer.index);
    placed.push_back(layer.at);
  }
  Value* counts = add(kExpertCounts, std::move(chosen), {{"experts", choices_.front().experts}},
                      names::kExpertCounts);
  graph_.add_output({OutputRole::ExpertCounts}, counts);
  if (!options_.counts_lost_rows) return;
  Value* lost = add(kLostRows, std::move(placed), {}, names::kLostRows);
  graph_.add_output({OutputRole::LostRows}, lost);
}

std::string ModelBuilder::value_name(std::string_view name) const {
  const std::string module = short_path(builder_.path());
  if (module.empty()) return std::string(name);
  return name.empty() ? module : cat(module, ".", name);
}

Value* ModelBuilder::input(std::string_view name, DType dtype, Shape shape) {
  NodeOptions options{.name = std::string(name)};
  if (shape.size() == 2) options.dims = {std::string(dims::kBatch), std::string(dims::kSequence)};
  return graph_
      .insert_source(nullptr, kInput, std::string(name), {dtype, std::move(shape), {}}, options)
      ->result();
}

Value* ModelBuilder::count() {
  if (count_ == nullptr) count_ = input(names::kCount, DType::F32, {});
  return count_;
}

std::vector<NamedRows> all_rows(std::string name, const Shape& shape) {
  return {{std::move(name), 0, shape.size() == 1 ? shape[0] : row_count(shape)}};
}

}  // namespace weft
