#include "model/decoder_layers.h"

#include <cmath>

#include "graph/dims.h"
#include "graph/module_path.h"
#include "graph/ops/ops.h"
#include "model/hf_config.h"

namespace weft {
namespace {

const std::string kEmbed(dims::kEmbed);
const std::vector<std::string> kVocabEmbed = {std::string(dims::kVocab), kEmbed};

std::string hf_layer(int64_t layer) {
  return cat("model.layers.", layer);
}

}  // namespace

DecoderLayers::DecoderLayers(const ModelSpec& spec, const BuildOptions& options, LayerNames names)
    : s_(spec), names_(std::move(names)), m_(spec, options) {}

BuiltModel DecoderLayers::build() {
  Value* x = embedding();
  for (int64_t layer = 0; layer < s_.n_layers; ++layer) {
    x = attention_block(x, layer);
    x = feed_forward_block(x, layer);
  }
  return finish(x);
}

Value* DecoderLayers::embedding() {
  m_.enter("tok_embeddings");
  const Shape shape = {s_.vocab_size, s_.dim};
  const std::vector<std::string> repeated =
      s_.tie_embeddings ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{};
  table_ = m_.param({"weight", shape, kVocabEmbed, Init::Normal, kInitStd,
                     all_rows("model.embed_tokens.weight", shape), repeated});
  return m_.add(kEmbedding, {m_.tokens(), table_});
}

Value* DecoderLayers::attention_block(Value* x, int64_t layer) {
  const std::string path = block_path(layer);
  Value* y = norm(x, path + ".attention_norm", hf_layer(layer) + ".input_layernorm");
  m_.enter(path + ".attention");
  const std::string hf = hf_layer(layer) + ".self_attn";
  y = s_.latent.kv_rank > 0 ? latent_attention(y, hf) : attention(y, layer, hf);
  m_.enter(path);
  return m_.add(kAdd, {x, y}, {}, "mid");
}

Value* DecoderLayers::feed_forward_block(Value* x, int64_t layer) {
  const std::string path = block_path(layer);
  Value* y = norm(x, path + ".ffn_norm", hf_layer(layer) + ".post_attention_layernorm");
  const std::string hf = cat(hf_layer(layer), ".", names_.feed_forward);
  if (s_.experts.in_layer(layer)) {
    m_.enter(path + ".moe");
    y = experts(y, hf);
  } else {
    m_.enter(path + ".feed_forward");
    y = feed_forward(y, s_.ffn_dim, hf);
  }
  m_.enter(path);
  return m_.add(kAdd, {x, y}, {}, "out");
}

BuiltModel DecoderLayers::finish(Value* x) {
  x = norm(x, "norm", "model.norm");
  m_.enter("output");
  if (s_.tie_embeddings) return m_.finish(m_.add(kMatmul, {x, table_}, {{"tb", true}}, "logits"));
  const Shape shape = {s_.vocab_size, s_.dim};
  return m_.finish(
      project(x, {"", shape, kVocabEmbed, kInitStd}, all_rows("lm_head.weight", shape), "logits"));
}

Value* DecoderLayers::attention(Value* x, int64_t layer, const std::string& hf) {
  const int64_t q = s_.n_heads * s_.head_dim;
  const int64_t kv = s_.n_kv_heads * s_.head_dim;
  const std::vector<NamedRows> rows = {{hf + ".q_proj.weight", 0, q},
                                       {hf + ".k_proj.weight", q, kv},
                                       {hf + ".v_proj.weight", q + kv, kv}};
  Value* w = weight({"wqkv.", {q + 2 * kv, s_.dim}, {m_.qkv_dim(q, kv), kEmbed}, kInitStd}, rows);
  Value* y = m_.add(kMatmul, {x, m_.repeat_kv(w)}, {{"tb", true}}, "qkv");
  if (s_.qk_norm) y = qk_norm(y, hf);
  if (s_.attention_layers.has_rope(layer)) {
    y = rope(y, s_.n_heads + m_.kv_heads(), s_.head_dim, 0, "rope");
    if (s_.qk_unit_norm) {
      y = m_.add(kQkUnitNorm, {y},
                 {{"heads", s_.n_heads}, {"kv_heads", m_.kv_heads()}, {"eps", s_.norm_eps}},
                 "qk_norm");
    }
  } else {
    y = scale_queries(y);
  }
  y = m_.attention(y, {.chunk = s_.attention_layers.chunk_of(layer)});
  const Shape shape = {s_.dim, q};
  return project(y, {"wo.", shape, {kEmbed, std::string(dims::kHeads)}, residual_std()},
                 all_rows(hf + ".o_proj.weight", shape), "out");
}

Value* DecoderLayers::qk_norm(Value* qkv, const std::string& hf) {
  Value* q = norm_weight("q_norm.weight", s_.head_dim, dims::kHeadDim, hf + ".q_norm");
  Value* k = norm_weight("k_norm.weight", s_.head_dim, dims::kHeadDim, hf + ".k_norm");
  return m_.add(kQkNorm, {qkv, q, k},
                {{"heads", s_.n_heads}, {"kv_heads", m_.kv_heads()}, {"eps", s_.norm_eps}},
                "qk_norm");
}

Value* DecoderLayers::rope(Value* x, int64_t heads, int64_t head_dim, int64_t rotary_dim,
                           std::string_view result) {
  std::vector<Value*> rotated = {x};
  if (m_.positions() != nullptr) rotated.push_back(m_.positions());
  const RopeScaling& scaling = s_.rope_scaling;
  return m_.add(kRope, rotated,
                {{"heads", heads},
                 {"head_dim", head_dim},
                 {"rotary_dim", rotary_dim},
                 {"interleaved", s_.rope_interleaved},
                 {"theta", s_.rope_theta},
                 {"factor", scaling.factor},
                 {"low_freq_factor", scaling.low_freq_factor},
                 {"high_freq_factor", scaling.high_freq_factor},
                 {"original_max_position", scaling.original_max_position},
                 {"yarn", scaling.yarn},
                 {"truncate", scaling.truncate},
                 {"magnitude", scaling.magnitude()}},
                result);
}

Value* DecoderLayers::scale_queries(Value* qkv) {
  const AttentionLayers& layers = s_.attention_layers;
  // Positions before the first step are scaled by 1.
  if (layers.temperature == 0 || m_.seq_len() < layers.temperature_floor) return qkv;
  std::vector<Value*> operands = {qkv};
  if (m_.positions() != nullptr) operands.push_back(m_.positions());
  return m_.add(kScaleQueries, operands,
                {{"heads", s_.n_heads},
                 {"head_dim", s_.head_dim},
                 {"scale", layers.temperature},
                 {"floor", layers.temperature_floor}},
                "scaled");
}

Value* DecoderLayers::feed_forward(Value* x, int64_t f, const std::string& hf) {
  const std::vector<NamedRows> rows = {{hf + ".gate_proj.weight", 0, f},
                                       {hf + ".up_proj.weight", f, f}};
  const std::vector<std::string> dims = {dims::packed(dims::kFfn, {f, f}), kEmbed};
  Value* y = project(x, {"w13.", {2 * f, s_.dim}, dims, kInitStd}, rows, "gate_up");
  y = m_.add(kSwiglu, {y}, {}, "swiglu");
  const Shape shape = {s_.dim, f};
  return project(y, {"w2.", shape, {kEmbed, std::string(dims::kFfn)}, residual_std()},
                 all_rows(hf + ".down_proj.weight", shape), "down");
}

Value* DecoderLayers::norm(Value* x, const std::string& path, const std::string& hf) {
  m_.enter(path);
  Value* weight = norm_weight("weight", s_.dim, dims::kEmbed, hf);
  return m_.add(kRmsNorm, {x, weight}, {{"eps", s_.norm_eps}});
}

Value* DecoderLayers::norm_weight(std::string name, int64_t size, std::string_view dim,
                                  const std::string& hf) {
  return m_.param({std::move(name),
                   {size},
                   {std::string(dim)},
                   Init::Ones,
                   0,
                   all_rows(hf + ".weight", {size})});
}

Value* DecoderLayers::weight(const Weight& weight, std::vector<NamedRows> rows) {
  return m_.param({weight.module + "weight", weight.shape, weight.dims, Init::Normal, weight.std,
                   std::move(rows)});
}

Value* DecoderLayers::project(Value* x, const Weight& of, std::vector<NamedRows> rows,
                              std::string_view result) {
  return m_.add(kMatmul, {x, weight(of, std::move(rows))}, {{"tb", true}}, result);
}

double DecoderLayers::residual_std() const {
  return kInitStd / std::sqrt(2.0 * static_cast<double>(s_.n_layers));
}

BuiltModel build_decoder(const ModelSpec& spec, const BuildOptions& options) {
  return DecoderLayers(spec, options).build();
}

void check_rotary_heads(const ModelSpec& spec) {
  USER_CHECK(spec.head_dim % 2 == 0, "heads of ", spec.head_dim,
             ", but rotary positions need an even size; choose other sizes");
}

ModelSpec read_decoder_except_heads(const HfReader& hf, double default_theta) {
  hf.require_text("hidden_act", {"silu"});
  hf.require_flag("attention_bias", false);
  if (hf.number_or("attention_dropout", 0) != 0) hf.refuse("attention_dropout is not supported");
  ModelSpec spec = {.vocab_size = hf.size("vocab_size"),
                    .dim = hf.size("hidden_size"),
                    .n_layers = hf.size("num_hidden_layers"),
                    .n_heads = hf.size("num_attention_heads"),
                    .ffn_dim = hf.size("intermediate_size"),
                    .max_seq_len = hf.size("max_position_embeddings"),
                    .norm_eps = hf.number_or("rms_norm_eps", 1e-6),
                    .bias = false,
                    .tie_embeddings = hf.flag_or("tie_word_embeddings", false)};
  spec.n_kv_heads = hf.size_or("num_key_value_heads", spec.n_heads);
  spec.rope_theta = default_theta;
  hf.read_rope(spec);
  return spec;
}

ModelSpec read_decoder(const HfReader& hf, double default_theta) {
  ModelSpec spec = read_decoder_except_heads(hf, default_theta);
  spec.head_dim =
      hf.has("head_dim") ? hf.size("head_dim") : hf.quotient("hidden_size", "num_attention_heads");
  return spec;
}

void write_decoder(const ModelSpec& spec, HfWriter& hf) {
  hf.set("attention_bias", false);
  hf.set("attention_dropout", 0.0);
  hf.set_token_ids("bos_token_id", spec.bos_token_ids);
  hf.set_token_ids("eos_token_id", spec.eos_token_ids);
  hf.set("head_dim", spec.head_dim);
  hf.set("hidden_act", "silu");
  hf.set("hidden_size", spec.dim);
  hf.set("initializer_range", kInitStd);
  hf.set("intermediate_size", spec.ffn_dim);
  hf.set("max_position_embeddings", spec.max_seq_len);
  hf.set("num_attention_heads", spec.n_heads);
  hf.set("num_hidden_layers", spec.n_layers);
  hf.set("num_key_value_heads", spec.n_kv_heads);
  hf.set("rms_norm_eps", spec.norm_eps);
  hf.set_rope(spec);
  hf.set("tie_word_embeddings", spec.tie_embeddings);
}

}  // namespace weft
