// Llama 4, the text model. Layers with rotary positions attend within chunks; the others attend to
// all positions, and scale their queries by position. Some layers have a mixture of experts, whose
// router weighs what goes into one of them, and a shared expert.
#include <algorithm>
#include <array>

#include "model/decoder_layers.h"
#include "model/hf_config.h"
#include "model/models.h"

namespace weft {
namespace {

ModelSpec scout() {
  return {.model = "llama4",
          .flavor = "scout",
          .vocab_size = 202048,
          .dim = 5120,
          .n_layers = 48,
          .n_heads = 40,
          .n_kv_heads = 8,
          .head_dim = 128,
          .ffn_dim = 16384,
          .max_seq_len = 10485760,
          .bias = false,
          .tie_embeddings = false,
          .qk_unit_norm = true,
          .rope_theta = 500000,
          .rope_interleaved = true,
          .rope_scaling = {.factor = 16, .high_freq_factor = 1},
          .attention_layers = {.no_rope_interval = 4, .chunk = 8192, .temperature = 0.1},
          .experts = {.count = 16,
                      .ffn_dim = 8192,
                      .shared_ffn_dim = 8192,
                      .sigmoid = true,
                      .weighs_input = true}};
}

ModelSpec maverick() {
  ModelSpec spec = scout();
  spec.flavor = "maverick";
  spec.max_seq_len = 1048576;
  spec.qk_unit_norm = false;
  spec.rope_scaling = {};
  spec.experts.count = 128;
  spec.experts.step = 2;
  return spec;
}

ModelSpec debug() {
  ModelSpec spec = scout();
  spec.flavor = "debug";
  spec.vocab_size = 2048;
  spec.dim = 256;
  spec.n_layers = 4;
  spec.n_heads = 8;
  spec.n_kv_heads = 4;
  spec.head_dim = 32;
  spec.ffn_dim = 768;
  spec.max_seq_len = 2048;
  spec.rope_scaling = {};
  spec.attention_layers.chunk = spec.attention_layers.temperature_floor = 64;
  spec.experts.count = 8;
  spec.experts.ffn_dim = spec.experts.shared_ffn_dim = 384;
  spec.experts.step = 2;
  return spec;
}

std::span<const ModelSpec> presets() {
  static const std::vector<ModelSpec> list = {debug(), scout(), maverick()};
  return list;
}

void check(const ModelSpec& spec) {
  check_rotary_heads(spec);
  USER_CHECK(spec.experts.top_k == 1, "model.experts_per_token = ", spec.experts.top_k,
             ", but a llama4 has one expert per token");
  USER_CHECK(spec.experts.shared_ffn_dim == spec.experts.ffn_dim, "the shared expert is ",
             spec.experts.shared_ffn_dim,
             " wide, expected model.expert_ffn_dim = ", spec.experts.ffn_dim);
  CHECK(!spec.bias && spec.dropout == 0 && spec.rope_interleaved && spec.experts.weighs_input,
        "llama4 has neither biases nor dropout, rotates neighbours and weighs inputs of experts");
}

BuiltModel build(const ModelSpec& spec, const BuildOptions& options) {
  return DecoderLayers(spec, options,
                       {.feed_forward = "feed_forward",
                        .router = "router",
                        .shared_expert = "shared_expert",
                        .stacks_experts = true})
      .build();
}

// 1 or 0 for each layer.
template <class Test>
std::vector<int64_t> layer_flags(const ModelSpec& spec, const Test& test) {
  std::vector<int64_t> flags;
  for (int64_t layer = 0; layer < spec.n_layers; ++layer) flags.push_back(test(layer) ? 1 : 0);
  return flags;
}

std::vector<int64_t> rope_flags(const ModelSpec& spec) {
  return layer_flags(spec, [&](int64_t i) { return spec.attention_layers.has_rope(i); });
}

// The list without the layers that the model does not have; a shorter one is refused.
template <class List>
List of_layers(const HfReader& hf, const ModelSpec& spec, const std::string& key, List list) {
  if (list.empty()) return list;
  if (std::ssize(list) < spec.n_layers) {
    hf.refuse(cat("\"", key, "\" has ", list.size(), " entries, expected one for each of ",
                  spec.n_layers, " layers"));
  }
  list.resize(static_cast<size_t>(spec.n_layers));
  return list;
}

// Which layers have rotary positions, and which attend within chunks: an interval and the default
// if these describe the lists, which are present in most files.
void read_layers(const HfReader& hf, ModelSpec& spec) {
  AttentionLayers& layers = spec.attention_layers;
  constexpr int64_t kUsualInterval = 4;
  const int64_t given = hf.size_or("no_rope_layer_interval", kUsualInterval);
  std::vector<int64_t> rope = of_layers(hf, spec, "no_rope_layers", hf.indices("no_rope_layers"));
  for (int64_t& flag : rope) flag = flag != 0 ? 1 : 0;
  layers.no_rope_interval = rope.empty() ? given : kUsualInterval;
  if (!rope.empty() && rope != rope_flags(spec)) layers.no_rope_interval = given;
  if (!rope.empty() && rope != rope_flags(spec)) {
    layers.no_rope_interval = 0;
    layers.rope = rope;
  }
  const auto types = of_layers(hf, spec, "layer_types", hf.texts("layer_types"));
  if (types.empty()) return;
  std::vector<int64_t> chunked;
  for (const std::string& type : types) {
    if (type != "chunked_attention" && type != "full_attention") {
      hf.refuse(cat("\"layer_types\" has ", in_quotes(type),
                    ", expected \"chunked_attention\" or \"full_attention\""));
    }
    chunked.push_back(type == "chunked_attention" ? 1 : 0);
  }
  if (chunked != rope_flags(spec)) layers.chunked = chunked;
}

std::vector<int64_t> expert_layers(const ModelSpec& spec) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < spec.n_layers; ++layer) {
    if (spec.experts.in_layer(layer)) layers.push_back(layer);
  }
  return layers;
}

// Layers with experts are those of a list, or every step-th one.
void read_experts(const HfReader& hf, ModelSpec& spec) {
  const int64_t ffn_dim = hf.size("intermediate_size");
  spec.experts = {.count = hf.size("num_local_experts"),
                  .top_k = hf.size_or("num_experts_per_tok", 1),
                  .ffn_dim = ffn_dim,
                  .shared_ffn_dim = ffn_dim,
                  .sigmoid = true,
                  .weighs_input = true,
                  .step = hf.size_or("interleave_moe_layer_step", 1)};
  if (!hf.has("moe_layers")) return;
  const std::vector<int64_t> listed = hf.indices("moe_layers");
  if (listed == expert_layers(spec)) return;
  spec.experts.step = 1;
  for (int64_t layer = 0; layer < spec.n_layers; ++layer) {
    const bool has = std::find(listed.begin(), listed.end(), layer) != listed.end();
    if (!has) spec.experts.dense_layers.push_back(layer);
  }
}

ModelSpec from_hf(const HfReader& hf) {
  ModelSpec spec = read_decoder(hf, 500000);
  spec.ffn_dim = hf.size_or("intermediate_size_mlp", 16384);
  read_experts(hf, spec);
  spec.rope_interleaved = true;
  spec.qk_unit_norm = hf.flag_or("use_qk_norm", true);
  read_layers(hf, spec);
  AttentionLayers& layers = spec.attention_layers;
  layers.chunk = hf.size_or("attention_chunk_size", 8192);
  layers.temperature_floor = hf.size_or("floor_scale", 8192);
  layers.temperature =
      hf.flag_or_number("attn_temperature_tuning", true) ? hf.number_or("attn_scale", 0.1) : 0;
  return spec;
}

void to_hf(const ModelSpec& spec, HfWriter& hf) {
  hf.set_list("architectures", {"Llama4ForCausalLM"});
  write_decoder(spec, hf);
  const AttentionLayers& layers = spec.attention_layers;
  hf.set("intermediate_size", spec.experts.ffn_dim);
  hf.set("intermediate_size_mlp", spec.ffn_dim);
  hf.set("interleave_moe_layer_step", spec.experts.step);
  hf.set_indices("moe_layers", expert_layers(spec));
  hf.set("num_experts_per_tok", spec.experts.top_k);
  hf.set("num_local_experts", spec.experts.count);
  hf.set("attention_chunk_size", layers.chunk);
  hf.set("attn_temperature_tuning", layers.temperature > 0);
  if (layers.temperature > 0) hf.set("attn_scale", layers.temperature);
  hf.set("floor_scale", layers.temperature_floor);
  std::vector<std::string> types;
  for (int64_t layer = 0; layer < spec.n_layers; ++layer) {
    types.emplace_back(layers.chunk_of(layer) > 0 ? "chunked_attention" : "full_attention");
  }
  hf.set_list("layer_types", types);
  if (layers.no_rope_interval > 0) hf.set("no_rope_layer_interval", layers.no_rope_interval);
  hf.set_indices("no_rope_layers", rope_flags(spec));
  hf.set("use_qk_norm", spec.qk_unit_norm);
}

constexpr std::array<std::string_view, 8> kOwnKeys = {
    "model.n_kv_heads",         "model.rope_theta",        "model.rope_scaling",
    "model.n_experts",          "model.experts_per_token", "model.expert_ffn_dim",
    "training.router_aux_loss", "training.router_z_loss"};

}  // namespace

constinit const ModelDef kLlama4 = {.name = "llama4",
                                    .presets = presets,
                                    .check = check,
                                    .build = build,
                                    .hf_model_type = "llama4_text",
                                    .from_hf = from_hf,
                                    .to_hf = to_hf,
                                    .ffn_multiple = 256,
                                    .own_keys = kOwnKeys,
                                    .weight_prefix = "model.",
                                    // Of models that also read images.
                                    .outer_prefix = "language_model."};

}  // namespace weft
