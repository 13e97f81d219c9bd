// DeepSeek-V3: latent attention, whose rotary positions turn neighbours; after the first layers, a
// mixture of experts with a sigmoid router and a shared expert. Weights are those of the hub,
// without permutation.
#include <array>

#include "model/decoder_layers.h"
#include "model/hf_config.h"
#include "model/models.h"

namespace weft {
namespace {

// The 671B; all other presets differ in sizes.
ModelSpec preset_671b() {
  return {.model = "deepseek_v3",
          .flavor = "671B",
          .vocab_size = 129280,
          .dim = 7168,
          .n_layers = 61,
          .n_heads = 128,
          .n_kv_heads = 128,
          .head_dim = 192,
          .ffn_dim = 18432,
          .max_seq_len = 163840,
          .norm_eps = 1e-6,
          .bias = false,
          .tie_embeddings = false,
          .rope_interleaved = true,
          .rope_scaling = {.factor = 40,
                           .high_freq_factor = 32,
                           .original_max_position = 4096,
                           .yarn = true,
                           .mscale = 1,
                           .mscale_all_dim = 1},
          .latent =
              {.q_rank = 1536, .kv_rank = 512, .own_dim = 128, .rotary_dim = 64, .value_dim = 128},
          .experts = {.count = 256,
                      .top_k = 8,
                      .ffn_dim = 2048,
                      .shared_ffn_dim = 2048,
                      .sigmoid = true,
                      .normalize = true,
                      .has_bias = true,
                      .groups = 8,
                      .keep_groups = 4,
                      .scale = 2.5,
                      .first_layers = 3}};
}

// The sizes of Moonlight.
ModelSpec preset_16b() {
  ModelSpec spec = preset_671b();
  spec.flavor = "16B";
  spec.vocab_size = 163840;
  spec.dim = 2048;
  spec.n_layers = 27;
  spec.n_heads = spec.n_kv_heads = 16;
  spec.ffn_dim = 11264;
  spec.max_seq_len = 8192;
  spec.norm_eps = 1e-5;
  spec.rope_theta = 50000;
  spec.rope_scaling = {};
  spec.latent.q_rank = 0;
  spec.experts.count = 64;
  spec.experts.top_k = 6;
  spec.experts.ffn_dim = 1408;
  spec.experts.shared_ffn_dim = 2 * 1408;
  spec.experts.groups = spec.experts.keep_groups = 1;
  spec.experts.scale = 2.446;
  spec.experts.first_layers = 1;
  return spec;
}

ModelSpec preset_debug() {
  ModelSpec spec = preset_671b();
  spec.flavor = "debug";
  spec.vocab_size = 2048;
  spec.dim = 256;
  spec.n_layers = 4;
  spec.n_heads = spec.n_kv_heads = 8;
  spec.head_dim = 48;
  spec.ffn_dim = 768;
  spec.max_seq_len = 2048;
  spec.rope_scaling = {};
  spec.latent = {.q_rank = 96, .kv_rank = 64, .own_dim = 32, .rotary_dim = 16, .value_dim = 32};
  spec.experts.count = 8;
  spec.experts.top_k = 3;
  spec.experts.ffn_dim = spec.experts.shared_ffn_dim = 192;
  spec.experts.groups = 4;
  spec.experts.keep_groups = 2;
  spec.experts.first_layers = 1;
  return spec;
}

std::span<const ModelSpec> presets() {
  static const std::vector<ModelSpec> list = {preset_debug(), preset_16b(), preset_671b()};
  return list;
}

void check(const ModelSpec& spec) {
  const LatentAttention& latent = spec.latent;
  USER_CHECK(
      latent.rotary_dim % 2 == 0, "keys share ", latent.rotary_dim,
      " elements, but rotary positions need an even number; choose another qk_rope_head_dim");
  CHECK(!spec.bias && spec.dropout == 0, "deepseek_v3 has neither biases nor dropout");
  USER_CHECK(spec.experts.shared_ffn_dim % spec.experts.ffn_dim == 0, "the shared experts are ",
             spec.experts.shared_ffn_dim,
             " wide, expected a multiple of model.expert_ffn_dim = ", spec.experts.ffn_dim);
  CHECK(latent.kv_rank > 0 && spec.experts.count > 0 &&
            spec.head_dim == latent.own_dim + latent.rotary_dim && spec.n_kv_heads == spec.n_heads,
        "deepseek_v3 has experts, and latent attention with heads of ", spec.head_dim);
}

Experts read_experts(const HfReader& hf) {
  hf.require_text("scoring_func", {"sigmoid"});
  hf.require_text("topk_method", {"noaux_tc"});
  if (hf.size_or("moe_layer_freq", 1) != 1) hf.refuse("moe_layer_freq is not supported");
  const int64_t ffn_dim = hf.size("moe_intermediate_size");
  // transformers 5 writes the second name.
  const char* count = hf.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts";
  return {.count = hf.size(count),
          .top_k = hf.size("num_experts_per_tok"),
          .ffn_dim = ffn_dim,
          .shared_ffn_dim = ffn_dim * hf.count_or("n_shared_experts", 1),
          .sigmoid = true,
          .normalize = hf.flag_or("norm_topk_prob", true),
          .has_bias = true,
          .groups = hf.size_or("n_group", 1),
          .keep_groups = hf.size_or("topk_group", 1),
          .scale = hf.number_or("routed_scaling_factor", 1),
          .first_layers = hf.count_or("first_k_dense_replace", 0)};
}

void write_experts(const Experts& experts, HfWriter& hf) {
  hf.set("first_k_dense_replace", experts.first_layers);
  hf.set("moe_intermediate_size", experts.ffn_dim);
  hf.set("moe_layer_freq", int64_t{1});
  hf.set("n_group", experts.groups);
  hf.set("n_routed_experts", experts.count);
  hf.set("n_shared_experts", experts.shared_ffn_dim / experts.ffn_dim);
  hf.set("norm_topk_prob", experts.normalize);
  hf.set("num_experts_per_tok", experts.top_k);
  hf.set("routed_scaling_factor", experts.scale);
  hf.set("scoring_func", "sigmoid");
  hf.set("topk_group", experts.keep_groups);
  hf.set("topk_method", "noaux_tc");
}

ModelSpec from_hf(const HfReader& hf) {
  ModelSpec spec = read_decoder_except_heads(hf);
  if (spec.n_kv_heads != spec.n_heads) {
    hf.refuse(cat("\"num_key_value_heads\" is ", spec.n_kv_heads,
                  ", expected as many as \"num_attention_heads\" = ", spec.n_heads));
  }
  spec.rope_interleaved = hf.flag_or("rope_interleave", true);
  spec.latent = {.q_rank = hf.size_or("q_lora_rank", 0),
                 .kv_rank = hf.size("kv_lora_rank"),
                 .own_dim = hf.size("qk_nope_head_dim"),
                 .rotary_dim = hf.size("qk_rope_head_dim"),
                 .value_dim = hf.size("v_head_dim")};
  spec.head_dim = spec.latent.own_dim + spec.latent.rotary_dim;
  spec.experts = read_experts(hf);
  return spec;
}

void to_hf(const ModelSpec& spec, HfWriter& hf) {
  hf.set_list("architectures", {"DeepseekV3ForCausalLM"});
  write_decoder(spec, hf);
  // The part that is rotated.
  hf.set("head_dim", spec.latent.rotary_dim);
  hf.set("kv_lora_rank", spec.latent.kv_rank);
  if (spec.latent.q_rank > 0) {
    hf.set("q_lora_rank", spec.latent.q_rank);
  } else {
    hf.set_null("q_lora_rank");
  }
  hf.set("qk_head_dim", spec.head_dim);
  hf.set("qk_nope_head_dim", spec.latent.own_dim);
  hf.set("qk_rope_head_dim", spec.latent.rotary_dim);
  hf.set("rope_interleave", spec.rope_interleaved);
  hf.set("v_head_dim", spec.latent.value_dim);
  write_experts(spec.experts, hf);
}

constexpr std::array<std::string_view, 8> kOwnKeys = {
    "model.rope_theta",         "model.rope_scaling",    "model.n_experts",
    "model.experts_per_token",  "model.expert_ffn_dim",  "optimizer.expert_bias_rate",
    "training.router_aux_loss", "training.router_z_loss"};

}  // namespace

constinit const ModelDef kDeepseekV3 = {.name = "deepseek_v3",
                                        .presets = presets,
                                        .check = check,
                                        .build = build_decoder,
                                        .hf_model_type = "deepseek_v3",
                                        .from_hf = from_hf,
                                        .to_hf = to_hf,
                                        .ffn_multiple = 256,
                                        .own_keys = kOwnKeys,
                                        .weight_prefix = "model.",
                                        // Those that predict several tokens.
                                        .skipped_layers = "eh_proj.weight"};

}  // namespace weft
