// The graph: an ordered list of nodes, where order is execution order. Values know their definition
// and their uses. Passes change structure, types and names only through the edits below, which keep
// use lists and names consistent. They may set `path`, `phase` and `recomputed` of a node directly.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/op.h"
#include "graph/type.h"

namespace weft {

struct Node;

enum class Phase { Forward, Backward, Optimizer };

std::string_view phase_name(Phase phase);  // "fwd", "bwd", "opt"

// A tensor produced by a node.
struct Value {
  std::string name;  // without the leading %
  TensorType type;
  Node* def = nullptr;
  size_t index = 0;          // which result of def
  std::vector<Node*> users;  // one entry per use, in no particular order
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<Value*> operands;
  std::vector<std::unique_ptr<Value>> results;
  Attrs attrs;
  std::string path;  // module path, "layers.3.attention"; "" outside any module
  Phase phase = Phase::Forward;
  bool recomputed = false;  // a clone, made so that the original need not be kept for the backward

  // The operand of that name in the signature, which is not variadic; nullptr if it is optional and
  // absent.
  Value* operand(std::string_view name) const;
  // The operands of the variadic list of that name.
  std::span<Value* const> variadic(std::string_view name) const;
  Value* result(size_t i = 0) const { return results.at(i).get(); }
  Value* result(std::string_view name) const { return result(op->parsed().result_index(name)); }
  const Attr& attr(std::string_view name) const { return attrs.at(op->parsed().attr_index(name)); }
  Call call() const;

 private:
  friend class Graph;
  std::list<std::unique_ptr<Node>>::iterator position_;
};

// Options of a new node.
struct NodeOptions {
  std::string name = {};  // of the first result, made unique; other results get ".<result name>"
  std::string path = {};
  Phase phase = Phase::Forward;
  std::vector<std::string> result_names = {};  // instead of `name`: one per result
  std::vector<std::string> dims = {};          // of a source: the names of its dims
};

class Graph {
 public:
  explicit Graph(std::string name, Mesh mesh = {});
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  const std::string& name() const { return name_; }
  const Mesh& mesh() const { return mesh_; }
  void set_mesh(Mesh mesh) { mesh_ = std::move(mesh); }

  // Nodes in execution order. Do not edit the graph while iterating over this; iterate over nodes()
  // instead.
  const std::list<std::unique_ptr<Node>>& order() const { return nodes_; }
  std::vector<Node*> nodes() const;
  size_t size() const { return nodes_.size(); }
  Node* next(const Node* node) const;  // the following node; nullptr at the end

  // Results of the program, in order.
  struct Output {
    OutputKey key;
    Value* value = nullptr;
    std::string name() const { return to_string(key); }
  };
  const std::vector<Output>& outputs() const { return outputs_; }
  Value* find_output(const OutputKey& key) const;  // nullptr if there is none
  void add_output(OutputKey key, Value* value);
  void remove_output(const OutputKey& key);

  Value* find_value(std::string_view name) const;  // nullptr if there is none

  // --- edits ---
  // Inserts a node before `before` (nullptr: at the end); result types come from the op's infer.
  Node* insert(Node* before, const OpDef& op, std::vector<Value*> operands, Attrs attrs,
               const NodeOptions& options);
  // Same for a source op (input, param, state, bucket), whose type is given instead of inferred.
  // `source` is its first attribute: a name, the key of a state, or the members of a bucket.
  Node* insert_source(Node* before, const OpDef& op, Attr source, TensorType type,
                      const NodeOptions& options);
  // Makes every use of `from` (outputs included) a use of `to`, except uses by `except`.
  void replace_uses(Value* from, Value* to, const Node* except = nullptr);
  // Redirects one operand of one node.
  void replace_operand(Node* node, size_t operand, Value* to);
  void replace_operand(Node* node, std::string_view operand, Value* to);
  void set_attr(Node* node, std::string_view name, Attr value);
  // Gives a node its optional last operand.
  void append_operand(Node* node, Value* operand);
  // Infers the result types again after operands changed.
  void retype(Node* node);
  // Changes the type of a source, or the placement of a result.
  void set_type(Value* value, TensorType type);
  // Renames a value; the name is made unique.
  void rename(Value* value, const std::string& name);
  // Removes a node whose results are all unused.
  void erase(Node* node);
  // Moves a node before another (nullptr: to the end). The caller makes sure that definitions stay
  // before uses.
  void move_before(Node* node, Node* before);
  // Copies a node to before `before` with other operands; its results are named after the
  // originals.
  Node* clone(const Node* node, Node* before, std::vector<Value*> operands,
              std::string_view suffix);

 private:
  Value* add_result(Node* node, const std::string& name, TensorType type);
  Node* place(std::unique_ptr<Node> node, Node* before);
  std::string unique_name(const std::string& name);

  std::string name_;
  Mesh mesh_;
  std::list<std::unique_ptr<Node>> nodes_;
  std::vector<Output> outputs_;
  std::map<std::string, Value*, std::less<>> values_;
  std::map<std::string, int64_t, std::less<>> next_suffix_;
};

// Hash of the canonical text; equal graphs have equal hashes on every machine.
uint64_t hash(const Graph& graph);

// Position of every node in execution order.
std::unordered_map<const Node*, int64_t> positions(const Graph& graph);

}  // namespace weft
