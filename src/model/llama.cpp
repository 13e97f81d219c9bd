// Llama 2 and 3: RMSNorm before each sublayer, rotary positions, grouped-query attention, SwiGLU
// feed-forward, no biases. Weights are [out, in] in Hugging Face order (RoPE rotates halves); q|k|v
// and gate|up are one parameter each.
//
//   B batch   T sequence   C dim   H heads   K kv heads   D head_dim   F ffn_dim   V vocab_size
//   tokens [B,T] -> x [B,T,C] -> layers: qkv [B,T,(H+2K)D], gate|up [B,T,2F] -> logits [B,T,V]
#include <array>

#include "model/decoder_layers.h"
#include "model/hf_config.h"
#include "model/models.h"

namespace weft {
namespace {

struct Size {
  const char* flavor;
  int64_t dim, n_layers, n_heads, n_kv_heads, ffn_dim;
};

// Llama 3.1 and 3.2 scale the rotation by a factor that depends on the model size.
ModelSpec preset(const Size& size, double rope_factor) {
  return {.model = "llama",
          .flavor = size.flavor,
          .vocab_size = 128256,
          .dim = size.dim,
          .n_layers = size.n_layers,
          .n_heads = size.n_heads,
          .n_kv_heads = size.n_kv_heads,
          .head_dim = size.dim / size.n_heads,
          .ffn_dim = size.ffn_dim,
          .max_seq_len = 131072,
          .bias = false,
          .tie_embeddings = false,
          .rope_theta = 500000,
          .rope_scaling = {.factor = rope_factor}};
}

ModelSpec tied(ModelSpec spec) {
  spec.tie_embeddings = true;
  return spec;
}

std::vector<ModelSpec> make_presets() {
  ModelSpec debug = preset({"debug", 256, 6, 16, 16, 768}, 0);
  debug.vocab_size = 2048;
  debug.max_seq_len = 2048;
  ModelSpec llama2 = preset({"llama2-7B", 4096, 32, 32, 32, 11008}, 0);
  llama2.vocab_size = 32000;
  llama2.max_seq_len = 4096;
  llama2.rope_theta = 10000;
  return {debug,
          tied(preset({"1B", 2048, 16, 32, 8, 8192}, 32)),
          tied(preset({"3B", 3072, 28, 24, 8, 8192}, 32)),
          preset({"8B", 4096, 32, 32, 8, 14336}, 8),
          preset({"70B", 8192, 80, 64, 8, 28672}, 8),
          preset({"405B", 16384, 126, 128, 8, 53248}, 8),
          llama2};
}

std::span<const ModelSpec> presets() {
  static const std::vector<ModelSpec> list = make_presets();
  return list;
}

void check(const ModelSpec& spec) {
  USER_CHECK(spec.head_dim % 2 == 0, "model.dim = ", spec.dim,
             " over model.n_heads = ", spec.n_heads, " gives heads of ", spec.head_dim,
             ", but rotary positions need an even size; choose other sizes");
  CHECK(!spec.bias && spec.dropout == 0, "llama has neither biases nor dropout");
}

ModelSpec from_hf(const HfReader& hf) {
  hf.require_flag("mlp_bias", false);
  return read_decoder(hf);
}

void to_hf(const ModelSpec& spec, HfWriter& hf) {
  hf.set_list("architectures", {"LlamaForCausalLM"});
  write_decoder(spec, hf);
  hf.set("mlp_bias", false);
}

constexpr std::array<std::string_view, 3> kOwnKeys = {"model.n_kv_heads", "model.rope_theta",
                                                      "model.rope_scaling"};
// Written by older transformers; derived from theta.
constexpr std::array<std::string_view, 1> kSkippedWeights = {".rotary_emb.inv_freq"};

}  // namespace

constinit const ModelDef kLlama = {.name = "llama",
                                   .presets = presets,
                                   .check = check,
                                   .build = build_decoder,
                                   .hf_model_type = "llama",
                                   .from_hf = from_hf,
                                   .to_hf = to_hf,
                                   .ffn_multiple = 256,
                                   .own_keys = kOwnKeys,
                                   .weight_prefix = "model.",
                                   .skipped_weights = kSkippedWeights};

}  // namespace weft
