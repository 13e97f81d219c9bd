// Qwen3 with experts: the dense model, whose feed-forward is a mixture of experts with a softmax
// router.
#include <array>

#include "model/decoder_layers.h"
#include "model/hf_config.h"
#include "model/models.h"

namespace weft {
namespace {

struct Size {
  const char* flavor;
  int64_t dim, n_layers, n_heads, ffn_dim, expert_ffn_dim;
};

ModelSpec preset(const Size& size) {
  return {.model = "qwen3_moe",
          .flavor = size.flavor,
          .vocab_size = 151936,
          .dim = size.dim,
          .n_layers = size.n_layers,
          .n_heads = size.n_heads,
          .n_kv_heads = 4,
          .head_dim = 128,
          .ffn_dim = size.ffn_dim,
          .max_seq_len = 40960,
          .norm_eps = 1e-6,
          .bias = false,
          .tie_embeddings = false,
          .qk_norm = true,
          .rope_theta = 1e6,
          .experts = {.count = 128, .top_k = 8, .ffn_dim = size.expert_ffn_dim, .normalize = true}};
}

std::vector<ModelSpec> make_presets() {
  ModelSpec debug = preset({"debug", 256, 6, 8, 768, 192});
  debug.vocab_size = 2048;
  debug.head_dim = 48;
  debug.max_seq_len = 2048;
  debug.experts.count = 8;
  debug.experts.top_k = 3;
  return {debug, preset({"30B-A3B", 2048, 48, 32, 6144, 768}),
          preset({"235B-A22B", 4096, 94, 64, 12288, 1536})};
}

std::span<const ModelSpec> presets() {
  static const std::vector<ModelSpec> list = make_presets();
  return list;
}

void check(const ModelSpec& spec) {
  check_rotary_heads(spec);
  CHECK(spec.qk_norm && spec.experts.count > 0 && !spec.bias && spec.dropout == 0,
        "qwen3_moe has q/k norms and experts, and neither biases nor dropout");
}

ModelSpec from_hf(const HfReader& hf) {
  hf.require_flag("use_sliding_window", false);
  ModelSpec spec = read_decoder(hf);
  spec.qk_norm = true;
  // transformers 5 writes the second name.
  const char* count = hf.has("num_experts") ? "num_experts" : "num_local_experts";
  spec.experts = {.count = hf.size(count),
                  .top_k = hf.size("num_experts_per_tok"),
                  .ffn_dim = hf.size("moe_intermediate_size"),
                  .normalize = hf.flag_or("norm_topk_prob", false),
                  .step = hf.size_or("decoder_sparse_step", 1),
                  .dense_layers = hf.indices("mlp_only_layers")};
  return spec;
}

void to_hf(const ModelSpec& spec, HfWriter& hf) {
  hf.set_list("architectures", {"Qwen3MoeForCausalLM"});
  write_decoder(spec, hf);
  hf.set("decoder_sparse_step", spec.experts.step);
  hf.set_indices("mlp_only_layers", spec.experts.dense_layers);
  hf.set("moe_intermediate_size", spec.experts.ffn_dim);
  hf.set("norm_topk_prob", spec.experts.normalize);
  hf.set("num_experts", spec.experts.count);
  hf.set("num_experts_per_tok", spec.experts.top_k);
  hf.set("use_sliding_window", false);
}

constexpr std::array<std::string_view, 8> kOwnKeys = {
    "model.n_kv_heads",         "model.rope_theta",        "model.rope_scaling",
    "model.n_experts",          "model.experts_per_token", "model.expert_ffn_dim",
    "training.router_aux_loss", "training.router_z_loss"};

}  // namespace

constinit const ModelDef kQwen3Moe = {.name = "qwen3_moe",
                                      .presets = presets,
                                      .check = check,
                                      .build = build_decoder,
                                      .hf_model_type = "qwen3_moe",
                                      .from_hf = from_hf,
                                      .to_hf = to_hf,
                                      .ffn_multiple = 256,
                                      .own_keys = kOwnKeys,
                                      .weight_prefix = "model."};

}  // namespace weft
