// Qwen3, the dense models: Llama with a norm of every query and key head, and heads whose size does
// not follow from the width.
#include <array>

#include "model/decoder_layers.h"
#include "model/hf_config.h"
#include "model/models.h"

namespace weft {
namespace {

struct Size {
  const char* flavor;
  int64_t dim, n_layers, n_heads, ffn_dim;
};

ModelSpec preset(const Size& size, bool tied) {
  return {.model = "qwen3",
          .flavor = size.flavor,
          .vocab_size = 151936,
          .dim = size.dim,
          .n_layers = size.n_layers,
          .n_heads = size.n_heads,
          .n_kv_heads = 8,
          .head_dim = 128,
          .ffn_dim = size.ffn_dim,
          .max_seq_len = 40960,
          .norm_eps = 1e-6,
          .bias = false,
          .tie_embeddings = tied,
          .qk_norm = true,
          .rope_theta = 1e6};
}

std::vector<ModelSpec> make_presets() {
  ModelSpec debug = preset({"debug", 256, 6, 8, 768}, true);
  debug.vocab_size = 2048;
  debug.n_kv_heads = 4;
  debug.head_dim = 48;
  debug.max_seq_len = 2048;
  return {debug,
          preset({"0.6B", 1024, 28, 16, 3072}, true),
          preset({"1.7B", 2048, 28, 16, 6144}, true),
          preset({"4B", 2560, 36, 32, 9728}, true),
          preset({"8B", 4096, 36, 32, 12288}, false),
          preset({"14B", 5120, 40, 40, 17408}, false),
          preset({"32B", 5120, 64, 64, 25600}, false)};
}

std::span<const ModelSpec> presets() {
  static const std::vector<ModelSpec> list = make_presets();
  return list;
}

void check(const ModelSpec& spec) {
  check_rotary_heads(spec);
  CHECK(spec.qk_norm && !spec.bias && spec.dropout == 0,
        "qwen3 has q/k norms, and neither biases nor dropout");
}

ModelSpec from_hf(const HfReader& hf) {
  hf.require_flag("use_sliding_window", false);
  ModelSpec spec = read_decoder(hf);
  spec.qk_norm = true;
  return spec;
}

void to_hf(const ModelSpec& spec, HfWriter& hf) {
  hf.set_list("architectures", {"Qwen3ForCausalLM"});
  write_decoder(spec, hf);
  hf.set("use_sliding_window", false);
}

constexpr std::array<std::string_view, 3> kOwnKeys = {"model.n_kv_heads", "model.rope_theta",
                                                      "model.rope_scaling"};

}  // namespace

constinit const ModelDef kQwen3 = {.name = "qwen3",
                                   .presets = presets,
                                   .check = check,
                                   .build = build_decoder,
                                   .hf_model_type = "qwen3",
                                   .from_hf = from_hf,
                                   .to_hf = to_hf,
                                   .ffn_multiple = 256,
                                   .own_keys = kOwnKeys,
                                   .weight_prefix = "model."};

}  // namespace weft
