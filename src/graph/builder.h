// Appends nodes with the current module path and phase filled in: the way models and gradient rules
// write graphs. Attributes are given by name and checked against the op's signature.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace weft {

using NamedAttr = std::pair<std::string_view, Attr>;

class Builder {
 public:
  // Nodes go before `before` (nullptr: the end).
  explicit Builder(Graph& graph, Node* before = nullptr) : graph_(graph), before_(before) {}

  // Adds one node; `name` is the name of its first result.
  Node* add(const OpDef& op, std::vector<Value*> operands, std::initializer_list<NamedAttr> attrs,
            std::string_view name);

  // The same with a name for each result.
  Node* add(const OpDef& op, std::vector<Value*> operands, std::initializer_list<NamedAttr> attrs,
            std::vector<std::string> names);

  Graph& graph() { return graph_; }
  void set_path(std::string path) { path_ = std::move(path); }
  void set_phase(Phase phase) { phase_ = phase; }
  const std::string& path() const { return path_; }

 private:
  Graph& graph_;
  Node* before_;
  std::string path_;
  Phase phase_ = Phase::Forward;
};

// Signature defaults with the named ones replaced; throws InternalError for unknown names, and for
// a required attribute that is missing.
Attrs make_attrs(const OpDef& op, std::initializer_list<NamedAttr> attrs);

// What a gradient rule sees: the node, the gradients of its results (nullptr where none arrived),
// and a builder positioned in the backward.
class Vjp {
 public:
  Vjp(Builder& builder, const Node& node, std::vector<Value*> result_grads)
      : builder_(builder), node_(node), result_grads_(std::move(result_grads)) {}

  const Node& node() const { return node_; }
  Value* operand(size_t i) const { return node_.operands.at(i); }
  Value* result(size_t i) const { return node_.result(i); }
  size_t num_operands() const { return node_.operands.size(); }
  Value* grad(size_t result = 0) const { return result_grads_.at(result); }
  const Attr& attr(std::string_view name) const { return node_.attr(name); }

  // The dtype the gradient of this operand is to have: its own, or, for a parameter cast down to
  // the compute type, the type that gradients are reduced in. Where several readers contribute,
  // f32: the sum is rounded once, by the gradient of the cast.
  DType grad_dtype(size_t operand) const;

  // Adds a backward node whose results are the gradients of operands `of`, `of` + 1, ...
  Node* add(const OpDef& op, std::vector<Value*> operands, std::initializer_list<NamedAttr> attrs,
            size_t of);

 private:
  Builder& builder_;
  const Node& node_;
  std::vector<Value*> result_grads_;
};

}  // namespace weft
