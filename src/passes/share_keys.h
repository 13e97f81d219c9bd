// Attention whose queries are sharded over cp, and its gradient: the queries stay where they are,
// keys and values are split off and gathered, or sent around the ring of ranks a block at a time.
//
//   %mix, %mix.lse = attention(%qkv; ...) : f32[4,8,16] @S(1:cp), f32[4,2,8] @S(2:cp)
// becomes, gathered:
//   %qkv.q, %qkv.kv = split_qkv(%qkv; ...) : f32[4,8,16] @S(1:cp), f32[4,8,16] @S(1:cp)
//   %qkv.kv.full = all_gather(%qkv.kv; axis="cp", dim=1) : f32[4,8,16]
//   %mix, %mix.lse = context_attention(%qkv.q, %qkv.kv.full, %positions, %coordinate.cp; ...)
// and around a ring of two ranks:
//   %mix.0, %mix.lse.0 = context_attention(%qkv.q, %qkv.kv, ...; ..., blocks=2, block=0)
//   %qkv.kv.1 = shift(%qkv.kv; axis="cp") : f32[4,8,16] @S(1:cp)
//   %mix, %mix.lse = context_attention_more(%qkv.q, %qkv.kv.1, %mix.0, %mix.lse.0, ...; block=1)
// The gradient of the keys and values of a block is added up on its way around the ring, which ends
// at the rank that owns them.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace weft {

class KeySharing {
 public:
  // `place_node` places a node and brings its operands to it.
  KeySharing(Graph& graph, bool by_ring, std::function<void(Node*)> place_node)
      : graph_(graph), by_ring_(by_ring), place_(std::move(place_node)) {}

  // Whether the node is an attention, or its gradient, whose queries are sharded over cp.
  static bool applies_to(const Node& node);

  // Inserts what computes the node's results before it; returns these.
  std::vector<Value*> expand(Node* node);

 private:
  // One node while it is expanded.
  struct Site {
    Node* node = nullptr;
    Builder builder;
    Value* q = nullptr;
    Value* kv = nullptr;
    std::vector<Value*> others = {};  // positions, coordinate and, with dropout, rng
    int64_t blocks = 1;
  };

  // Which keys a call has, and, unless it begins, the y and lse that it reads.
  struct Keys {
    Value* kv = nullptr;
    int64_t block = 0;
    Value* y = nullptr;
    Value* lse = nullptr;
  };

  Node* split(Builder& builder, const Node& node);
  std::vector<Value*> forward(Site& site);
  std::vector<Value*> backward(Site& site);
  Node* attend(Site& site, const OpDef& op, const Keys& keys,
               const std::vector<std::string>& names);
  Value* block_of(Site& site, int64_t block);
  Value* shift(Site& site, Value* value, const std::string& name);
  Value* add(Site& site, Value* a, Value* b, const std::string& name);

  Graph& graph_;
  const bool by_ring_;
  std::function<void(Node*)> place_;
  std::unordered_map<const Value*, Node*> splits_;                // by packed qkv
  std::unordered_map<const Value*, std::vector<Value*>> blocks_;  // by kv
};

}  // namespace weft
