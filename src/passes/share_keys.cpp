// In the forward, block j is the kv that j shifts bring from the rank j back. In the backward it is
// the same value, which recompute sends again. The own block comes last there: it hides the shift
// that brings the gradients back to their rank.
#include "passes/share_keys.h"

#include <algorithm>

#include "base/error.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "passes/redistribution.h"

namespace weft {

namespace {

bool is_backward(const Node& node) {
  return node.op == &kAttentionGrad || node.op == &kDocumentAttentionGrad;
}

Value* positions_input(const Graph& graph) {
  Value* positions = find_input(graph, names::kPositions);
  USER_CHECK(positions != nullptr, "place: the graph has no input \"", names::kPositions,
             "\", which attention over ", names::kContextAxis, " needs");
  return positions;
}

}  // namespace

bool KeySharing::applies_to(const Node& node) {
  const OpDef* ops[] = {&kAttention, &kAttentionGrad, &kDocumentAttention, &kDocumentAttentionGrad};
  return std::find(std::begin(ops), std::end(ops), node.op) != std::end(ops) &&
         placement_over(node.operand("qkv")->type, names::kContextAxis) != nullptr;
}

std::vector<Value*> KeySharing::expand(Node* node) {
  Builder builder(graph_, node);
  builder.set_path(node->path);
  builder.set_phase(node->phase);
  Node* parts = split(builder, *node);
  const std::string axis(names::kContextAxis);
  Site site{.node = node,
            .builder = builder,
            .q = parts->result("q"),
            .kv = parts->result("kv"),
            .others = {positions_input(graph_), coordinate_input(graph_, axis)},
            .blocks = by_ring_ ? graph_.mesh().axis_size(axis) : 1};
  if (Value* rng = node->operand("rng")) site.others.push_back(rng);
  return is_backward(*node) ? backward(site) : forward(site);
}

// One for the attention and its gradient.
Node* KeySharing::split(Builder& builder, const Node& node) {
  Value* qkv = node.operand("qkv");
  Node*& split = splits_[qkv];
  if (split == nullptr) {
    split = builder.add(kSplitQkv, {qkv},
                        {{"heads", node.attr("heads")},
                         {"kv_heads", node.attr("kv_heads")},
                         {"value_dim", node.attr("value_dim")}},
                        std::vector<std::string>{qkv->name + ".q", qkv->name + ".kv"});
    place_(split);
  }
  return split;
}

std::vector<Value*> KeySharing::forward(Site& site) {
  const std::string y_name = site.node->result("y")->name;
  const std::string lse_name = site.node->result("lse")->name;
  Node* node = nullptr;
  for (int64_t block = 0; block < site.blocks; ++block) {
    Keys keys{.kv = block_of(site, block), .block = block};
    if (node != nullptr) {
      keys.y = node->result("y");
      keys.lse = node->result("lse");
    }
    const std::string number = block + 1 < site.blocks ? cat(".", block) : "";
    node = attend(site, node == nullptr ? kContextAttention : kContextAttentionMore, keys,
                  {y_name + number, lse_name + number});
  }
  Value* y = node->result("y");
  if (y->type.dtype != site.q->type.dtype) {
    Node* cast = site.builder.add(kCast, {y}, {{"dtype", site.q->type.dtype}}, y_name);
    place_(cast);
    y = cast->result();
  }
  return {y, node->result("lse")};
}

std::vector<Value*> KeySharing::backward(Site& site) {
  const std::string name = site.node->result()->name;
  Value* dq = nullptr;
  Value* dkv = nullptr;
  for (int64_t i = 1; i <= site.blocks; ++i) {
    const int64_t block = i % site.blocks;
    const std::string number = site.blocks > 1 ? cat(".", block) : "";
    const Keys keys{.kv = block_of(site, block),
                    .block = block,
                    .y = site.node->operand("y"),
                    .lse = site.node->operand("lse")};
    const Node* part = attend(site, kContextAttentionGrad, keys,
                              {cat(name, ".q", number), cat(name, ".kv", number)});
    if (dkv != nullptr) dkv = shift(site, dkv, dkv->name + ".shifted");
    dq = add(site, dq, part->result("dq"), name + ".q.sum");
    dkv = add(site, dkv, part->result("dkv"), name + ".kv.sum");
  }
  Node* concat = site.builder.add(kConcatQkv, {dq, dkv},
                                  {{"heads", site.node->attr("heads")},
                                   {"kv_heads", site.node->attr("kv_heads")},
                                   {"value_dim", site.node->attr("value_dim")}},
                                  name);
  place_(concat);
  return {concat->result()};
}

Node* KeySharing::attend(Site& site, const OpDef& op, const Keys& keys,
                         const std::vector<std::string>& names) {
  std::vector<Value*> operands = {site.q, keys.kv};
  if (op.parsed().operands.front().name == "dy") {
    operands.insert(operands.begin(), site.node->operand("dy"));
  }
  if (keys.y != nullptr) operands.insert(operands.end(), {keys.y, keys.lse});
  operands.insert(operands.end(), site.others.begin(), site.others.end());
  const Node& node = *site.node;
  Node* added = site.builder.add(op, operands,
                                 {{"heads", node.attr("heads")},
                                  {"kv_heads", node.attr("kv_heads")},
                                  {"value_dim", node.attr("value_dim")},
                                  {"scale", node.attr("scale")},
                                  {"chunk", node.attr("chunk")},
                                  {"dropout", node.attr("dropout")},
                                  {"stream", node.attr("stream")},
                                  {"blocks", site.blocks},
                                  {"block", keys.block}},
                                 names);
  place_(added);
  return added;
}

// The own kv, or what as many shifts as `block` bring.
Value* KeySharing::block_of(Site& site, int64_t block) {
  std::vector<Value*>& known = blocks_[site.kv];
  if (known.empty()) known.push_back(site.kv);
  while (std::ssize(known) <= block) {
    known.push_back(shift(site, known.back(), cat(site.kv->name, ".", known.size())));
  }
  return known[static_cast<size_t>(block)];
}

Value* KeySharing::shift(Site& site, Value* value, const std::string& name) {
  return site.builder.add(kShift, {value}, {{"axis", std::string(names::kContextAxis)}}, name)
      ->result();
}

// The sum, or b if there is no a.
Value* KeySharing::add(Site& site, Value* a, Value* b, const std::string& name) {
  if (a == nullptr) return b;
  Node* sum = site.builder.add(kAdd, {a, b}, {}, name);
  place_(sum);
  return sum->result();
}

}  // namespace weft
