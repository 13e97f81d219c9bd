// Builds graphs for models and gradient rules: appends nodes and fills in the current module path
// and phase. Attributes are given by name and checked against the op's signature.
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
  // Inserts nodes before `before` (nullptr: at the end).
  explicit Builder(Graph& graph, Node* before = nullptr) : graph_(graph), before_(before) {}

  // Adds one node; `name` is the name of its first result.
  Node* add(const OpDef& op, std::vector<Value*> operands, std::initializer_list<NamedAttr> attrs,
            std::string_view name);

  // Same, with a name for each result.
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

// The signature's defaults, overridden by the given attributes. Throws InternalError for an unknown
// name or a missing required attribute.
Attrs make_attrs(const OpDef& op, std::initializer_list<NamedAttr> attrs);

// The input of a gradient rule: the node, the gradients of its results (nullptr where there is
// none), and a builder positioned in the backward.
class Vjp {
 public:
  Vjp(Builder& builder, const Node& node, std::vector<Value*> result_grads)
      : builder_(builder), node_(node), result_grads_(std::move(result_grads)) {}

  const Node& node() const { return node_; }
  Value* operand(std::string_view name) const { return node_.operand(name); }
  Value* result(std::string_view name) const { return node_.result(name); }
  Value* grad(size_t result = 0) const { return result_grads_.at(result); }
  const Attr& attr(std::string_view name) const { return node_.attr(name); }

  // The dtype for the gradient of this operand: the operand's own dtype, or the reduce dtype for a
  // parameter that is cast to the compute type. With several readers it is f32, so that the
  // gradient of the cast rounds the sum only once.
  DType grad_dtype(std::string_view operand) const;

  // Adds a backward node whose results are the gradients of operand `of` and those after it.
  Node* add(const OpDef& op, std::vector<Value*> operands, std::initializer_list<NamedAttr> attrs,
            std::string_view of);

 private:
  Builder& builder_;
  const Node& node_;
  std::vector<Value*> result_grads_;
};

}  // namespace weft
