// Node list, use lists and names; the edits keep them consistent.
#include "graph/graph.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "graph/text.h"

namespace weft {

namespace {

void remove_use(Value* value, const Node* user) {
  auto use = std::find(value->users.begin(), value->users.end(), user);
  CHECK(use != value->users.end(), "%", value->name, " is not used by the node that drops it");
  value->users.erase(use);
}

std::string result_name(const OpDef& op, const NodeOptions& options, size_t result) {
  if (!options.result_names.empty()) return options.result_names.at(result);
  if (result == 0) return options.name;
  const auto& specs = op.parsed().results;
  if (op.parsed().has_variadic_results() && result + 1 >= specs.size()) {
    return cat(options.name, ".", result);
  }
  return options.name + "." + specs.at(result).name;
}

}  // namespace

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::Forward:
      return "fwd";
    case Phase::Backward:
      return "bwd";
    case Phase::Optimizer:
      return "opt";
  }
  throw InternalError("unknown phase");
}

Value* Node::operand(std::string_view name) const {
  const size_t index = op->parsed().operand_index(name);
  const OperandKind kind = op->parsed().operands[index].kind;
  CHECK(kind != OperandKind::Variadic, op->name(), ": operand \"", name, "\" is variadic");
  if (kind == OperandKind::Optional && index >= operands.size()) return nullptr;
  return operands.at(index);
}

std::span<Value* const> Node::variadic(std::string_view name) const {
  const size_t index = op->parsed().operand_index(name);
  CHECK(op->parsed().operands[index].kind == OperandKind::Variadic, op->name(), ": operand \"",
        name, "\" is not variadic");
  return std::span(operands).subspan(index);
}

Call Node::call() const {
  Call call{.op = op, .operands = {}, .results = {}, .attrs = attrs};
  for (const Value* operand : operands) call.operands.push_back(operand->type);
  for (const auto& value : results) call.results.push_back(value->type);
  return call;
}

Graph::Graph(std::string name, Mesh mesh) : name_(std::move(name)), mesh_(std::move(mesh)) {}

std::vector<Node*> Graph::nodes() const {
  std::vector<Node*> list;
  list.reserve(nodes_.size());
  for (const auto& node : nodes_) list.push_back(node.get());
  return list;
}

Node* Graph::next(const Node* node) const {
  auto after = std::next(node->position_);
  return after == nodes_.end() ? nullptr : after->get();
}

Value* Graph::find_output(const OutputKey& key) const {
  for (const auto& output : outputs_) {
    if (output.key == key) return output.value;
  }
  return nullptr;
}

void Graph::add_output(OutputKey key, Value* value) {
  CHECK(find_output(key) == nullptr, "output \"", to_string(key), "\" already exists");
  CHECK(parse_output_key(to_string(key)) == key, "output \"", to_string(key),
        "\" has the name of another one");
  outputs_.push_back({std::move(key), value});
}

void Graph::remove_output(const OutputKey& key) {
  std::erase_if(outputs_, [&](const Output& output) { return output.key == key; });
}

Value* Graph::find_value(std::string_view name) const {
  auto found = values_.find(name);
  return found == values_.end() ? nullptr : found->second;
}

Node* Graph::insert(Node* before, const OpDef& op, std::vector<Value*> operands, Attrs attrs,
                    const NodeOptions& options) {
  auto node = std::make_unique<Node>();
  node->op = &op;
  node->operands = std::move(operands);
  node->attrs = std::move(attrs);
  node->path = options.path;
  node->phase = options.phase;
  CHECK(op.infer != nullptr, "op ", op.name(), " has no shape inference; use insert_source");
  std::vector<TensorType> types = op.infer(node->call());
  for (Value* operand : node->operands) operand->users.push_back(node.get());
  for (size_t i = 0; i < types.size(); ++i) {
    add_result(node.get(), result_name(op, options, i), std::move(types[i]));
  }
  return place(std::move(node), before);
}

Node* Graph::insert_source(Node* before, const OpDef& op, Attr source, TensorType type,
                           const NodeOptions& options) {
  auto node = std::make_unique<Node>();
  node->op = &op;
  CHECK(source.index() == op.parsed().attrs.at(0).default_value.index(), "op ", op.name(), ": ",
        to_string(source), " has the wrong kind");
  const auto* key = std::get_if<StateKey>(&source);
  CHECK(key == nullptr || parse_state_key(to_string(*key)) == *key, "state ", to_string(source),
        " has the name of another one");
  node->attrs = {std::move(source)};
  if (op.parsed().attrs.size() > 1) node->attrs.emplace_back(options.dims);
  node->path = options.path;
  node->phase = options.phase;
  add_result(node.get(), options.name, std::move(type));
  return place(std::move(node), before);
}

Node* Graph::place(std::unique_ptr<Node> node, Node* before) {
  auto where = before == nullptr ? nodes_.end() : before->position_;
  Node* placed = node.get();
  placed->position_ = nodes_.insert(where, std::move(node));
  return placed;
}

void Graph::replace_uses(Value* from, Value* to, const Node* except) {
  std::vector<Node*> kept;
  for (Node* user : from->users) {
    if (user == except) {
      kept.push_back(user);
      continue;
    }
    // One entry per use: this entry is for the first operand that still points to `from`.
    auto operand = std::find(user->operands.begin(), user->operands.end(), from);
    *operand = to;
    to->users.push_back(user);
  }
  from->users = std::move(kept);
  for (auto& output : outputs_) {
    if (output.value == from) output.value = to;
  }
}

void Graph::replace_operand(Node* node, size_t operand, Value* to) {
  remove_use(node->operands.at(operand), node);
  node->operands[operand] = to;
  to->users.push_back(node);
}

void Graph::replace_operand(Node* node, std::string_view operand, Value* to) {
  replace_operand(node, node->op->parsed().operand_index(operand), to);
}

void Graph::set_attr(Node* node, std::string_view name, Attr value) {
  Attr& attr = node->attrs.at(node->op->parsed().attr_index(name));
  CHECK(attr.index() == value.index(), node->op->name(), ": ", name, " has another kind");
  attr = std::move(value);
}

void Graph::append_operand(Node* node, Value* operand) {
  node->operands.push_back(operand);
  operand->users.push_back(node);
}

void Graph::retype(Node* node) {
  if (node->op->infer == nullptr) return;
  Call call = node->call();
  call.results.clear();
  std::vector<TensorType> types = node->op->infer(call);
  CHECK(types.size() == node->results.size(), "retyping changes the number of results");
  for (size_t i = 0; i < types.size(); ++i) node->results[i]->type = std::move(types[i]);
}

void Graph::set_type(Value* value, TensorType type) {
  CHECK(value->def->op->traits.source ||
            (type.dtype == value->type.dtype && type.shape == value->type.shape),
        "%", value->name, " is ", to_string(value->type), ", not ", to_string(type));
  value->type = std::move(type);
}

void Graph::rename(Value* value, const std::string& name) {
  if (value->name == name) return;
  values_.erase(value->name);
  value->name = unique_name(name);
  values_.emplace(value->name, value);
}

void Graph::erase(Node* node) {
  for (const auto& value : node->results) {
    CHECK(value->users.empty(), "%", value->name, " is erased but still used");
    for (const auto& output : outputs_) {
      CHECK(output.value != value.get(), "%", value->name, " is erased but is an output");
    }
    values_.erase(value->name);
  }
  for (Value* operand : node->operands) remove_use(operand, node);
  nodes_.erase(node->position_);
}

void Graph::move_before(Node* node, Node* before) {
  auto where = before == nullptr ? nodes_.end() : before->position_;
  nodes_.splice(where, nodes_, node->position_);
}

Node* Graph::clone(const Node* node, Node* before, std::vector<Value*> operands,
                   std::string_view suffix) {
  auto copy = std::make_unique<Node>();
  copy->op = node->op;
  copy->operands = std::move(operands);
  copy->attrs = node->attrs;
  copy->path = node->path;
  copy->phase = node->phase;
  copy->recomputed = node->recomputed;
  for (Value* operand : copy->operands) operand->users.push_back(copy.get());
  for (const auto& value : node->results) {
    add_result(copy.get(), cat(value->name, suffix), value->type);
  }
  return place(std::move(copy), before);
}

Value* Graph::add_result(Node* node, const std::string& name, TensorType type) {
  auto value = std::make_unique<Value>();
  value->name = unique_name(name);
  value->type = std::move(type);
  value->def = node;
  value->index = node->results.size();
  values_.emplace(value->name, value.get());
  node->results.push_back(std::move(value));
  return node->results.back().get();
}

std::string Graph::unique_name(const std::string& name) {
  if (values_.find(name) == values_.end()) return name;
  int64_t& next = next_suffix_.try_emplace(name, 2).first->second;
  while (true) {
    std::string candidate = cat(name, ".", next++);
    if (values_.find(candidate) == values_.end()) return candidate;
  }
}

uint64_t hash(const Graph& graph) {
  Hasher hasher;
  hasher.add(print_graph(graph));
  return hasher.value();
}

std::unordered_map<const Node*, int64_t> positions(const Graph& graph) {
  std::unordered_map<const Node*, int64_t> map;
  int64_t position = 0;
  for (const auto& node : graph.order()) map.emplace(node.get(), position++);
  return map;
}

}  // namespace weft
