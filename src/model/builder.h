// What the forwards of all models share: inputs, parameters with their Hugging Face names, dropout
// keyed by module path, and the loss. Value names are derived from the module path: in
// "layers.0.attention", "qkv" becomes %l0.attention.qkv.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace weft {

// Attributes of attention, see its definition; 0: the default.
struct AttentionOptions {
  int64_t value_dim = 0;
  double scale = 0;
  int64_t chunk = 0;
};

class ModelBuilder {
 public:
  ModelBuilder(const ModelSpec& spec, const BuildOptions& options);
  ModelBuilder(const ModelBuilder&) = delete;
  ModelBuilder& operator=(const ModelBuilder&) = delete;

  Value* tokens() const { return tokens_; }

  // i32[batch,time], the position of every token in its document; nullptr: that is its row.
  Value* positions() const { return positions_; }

  // i32[4] while training with dropout, else nullptr.
  Value* rng() const { return rng_; }

  // Nodes added from here on belong to this module.
  void enter(std::string path);
  const std::string& path() const { return builder_.path(); }

  // Adds a parameter of the current module; `info.name` is relative to it ("wqkv.weight").
  Value* param(ParamInfo info);

  // Adds a node and returns its first result, named after the module and `name` ("": the module).
  Value* add(const OpDef& op, std::vector<Value*> operands,
             std::initializer_list<NamedAttr> attrs = {}, std::string_view name = "");

  // How the model names the packed heads of a weight [q|k|v rows, ...] with these rows.
  std::string qkv_dim(int64_t q, int64_t kv) const;

  // Packed weights [q|k|v rows, columns] with as many key and value heads as attention() expects.
  Value* repeat_kv(Value* wqkv);
  int64_t kv_heads() const { return kv_heads_ * options_.kv_repeats; }

  // Adds a node and returns all its results, the first named as above, the others after it.
  std::vector<Value*> add_all(const OpDef& op, std::vector<Value*> operands,
                              std::initializer_list<NamedAttr> attrs, std::string_view name);

  // Counts choices of experts, and those without room among their rows, while training.
  struct Choices {
    Value* index;
    Value* at;
    int64_t experts;
  };
  void count_choices(const Choices& choices) { choices_.push_back(choices); }

  // Adds the losses of a router to that of the model while training with any of them.
  void add_router_loss(Value* logits, Value* index, bool sigmoid);

  // Causal attention over packed q, k and v; within documents and with dropout of probabilities if
  // the model is built that way.
  Value* attention(Value* qkv, const AttentionOptions& options = {});

  // The columns of x as values with these names and widths.
  struct Columns {
    std::string_view name;
    int64_t width;
  };
  std::vector<Value*> split_columns(Value* x, const std::vector<Columns>& parts);

  int64_t seq_len() const { return options_.seq_len; }

  // Dropout at the model's rate; returns x itself if the rate is 0 or dropout is off.
  Value* dropout(Value* x);

  // The random stream of an op in the current module.
  int64_t stream(std::string_view name) const;

  // Ends the forward with the loss of the logits, or with the logits themselves when decoding.
  BuiltModel finish(Value* logits);

 private:
  void add_counts();
  std::string value_name(std::string_view name) const;
  Value* input(std::string_view name, DType dtype, Shape shape);
  // The number of targets, f32[].
  Value* count();

  Graph graph_;
  Builder builder_;
  BuildOptions options_;
  double dropout_;
  int64_t heads_, kv_heads_;
  std::vector<ParamInfo> params_;
  std::vector<Choices> choices_;       // by layer
  std::vector<Value*> router_losses_;  // by layer
  Value* count_ = nullptr;
  Value* tokens_ = nullptr;
  Value* positions_ = nullptr;
  Value* rng_ = nullptr;
};

// The Hugging Face name of a parameter that is not fused from several tensors.
std::vector<NamedRows> all_rows(std::string name, const Shape& shape);

}  // namespace weft
