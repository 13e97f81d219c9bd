// What the decoders after Llama share: RMSNorm before each sublayer, rotary positions,
// grouped-query attention, SwiGLU, no biases. Weights are [out, in] in Hugging Face order; q|k|v
// and gate|up are one parameter each.
//
//   B batch   T sequence   C dim   H heads   K kv heads   D head_dim   F ffn_dim   V vocab_size
//   tokens [B,T] -> x [B,T,C] -> layers: qkv [B,T,(H+2K)D], gate|up [B,T,2F] -> logits [B,T,V]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/builder.h"

namespace weft {

class HfReader;
class HfWriter;

// How weight files name the modules of a layer, where models differ.
struct LayerNames {
  std::string feed_forward = "mlp";
  std::string router = "gate";
  std::string shared_expert = "shared_experts";
  // One tensor with the weights [in, out] of all experts, instead of two or three per expert.
  bool stacks_experts = false;
};

// Of every weight; those that end on the residual stream are smaller the more layers there are.
inline constexpr double kInitStd = 0.02;

class DecoderLayers {
 public:
  DecoderLayers(const ModelSpec& spec, const BuildOptions& options, LayerNames names = {});

  // The embedding, all layers, the last norm, the head and the loss.
  BuiltModel build();

 private:
  Value* embedding();
  // x + attention(norm(x)), or latent attention if the model has it.
  Value* attention_block(Value* x, int64_t layer);
  // x + feed_forward(norm(x)), by experts in the layers that have them.
  Value* feed_forward_block(Value* x, int64_t layer);
  BuiltModel finish(Value* x);

  // A weight [out, in]; `module` is "wo." or, for the module's own weight, "".
  struct Weight {
    std::string module;
    Shape shape;
    std::vector<std::string> dims;
    double std;
  };

  Value* attention(Value* x, int64_t layer, const std::string& hf);
  // In latent_attention.cpp.
  Value* latent_attention(Value* x, const std::string& hf);
  struct Latents {
    Value *q, *kv, *key;  // q: x itself if it has no latent; key: the shared part
  };
  Latents latents(Value* x, const std::string& hf);
  Value* latent_norm(Value* x, const std::string& name, const std::string& hf);
  // Rotates the last `rotary_dim` elements (0: all) of the first heads.
  Value* rope(Value* x, int64_t heads, int64_t head_dim, int64_t rotary_dim,
              std::string_view result);
  Value* scale_queries(Value* qkv);
  Value* qk_norm(Value* qkv, const std::string& hf);
  Value* feed_forward(Value* x, int64_t ffn_dim, const std::string& hf);
  Value* experts(Value* x, const std::string& hf);
  Value* router_bias(const std::string& hf);
  // What the experts compute, for rows [sources, parts, slots, dim].
  struct ExpertInput {
    Value* rows;
    Value* offsets;
    Value* weights;  // of rows; nullptr: they are weighted already
  };
  Value* expert_feed_forward(const ExpertInput& input, const std::string& hf);
  Value* expert_matmul(const ExpertInput& input, const Weight& weight, std::vector<NamedRows> rows,
                       std::string_view stacked, std::string_view result);
  Value* norm(Value* x, const std::string& path, const std::string& hf);
  Value* norm_weight(std::string name, int64_t size, std::string_view dim, const std::string& hf);
  Value* weight(const Weight& weight, std::vector<NamedRows> rows);
  // x W^T
  Value* project(Value* x, const Weight& weight, std::vector<NamedRows> rows,
                 std::string_view result);
  double residual_std() const;

  const ModelSpec& s_;
  LayerNames names_;
  ModelBuilder m_;
  Value* table_ = nullptr;
};

// A model with the names of weight files that most have.
BuiltModel build_decoder(const ModelSpec& spec, const BuildOptions& options);

// Throws UserError for heads that cannot be rotated.
void check_rotary_heads(const ModelSpec& spec);

// The fields of a config.json that these models share, and the same without the size of a head.
ModelSpec read_decoder(const HfReader& hf, double default_theta = 10000);
ModelSpec read_decoder_except_heads(const HfReader& hf, double default_theta = 10000);
void write_decoder(const ModelSpec& spec, HfWriter& hf);

}  // namespace weft
