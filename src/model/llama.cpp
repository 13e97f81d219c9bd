// Llama 2 and 3: RMSNorm before each sublayer, rotary positions, grouped-query attention, SwiGLU
// feed-forward, no biases. Weights are [out, in] in Hugging Face order (RoPE rotates halves); q|k|v
// and gate|up are one parameter each.
//
//   B batch   T sequence   C dim   H heads   K kv heads   D head_dim   F ffn_dim   V vocab_size
//   tokens [B,T] -> x [B,T,C] -> layers: qkv [B,T,(H+2K)D], gate|up [B,T,2F] -> logits [B,T,V]
#include <array>
#include <cmath>

#include "graph/dims.h"
#include "graph/module_path.h"
#include "graph/ops/ops.h"
#include "model/builder.h"
#include "model/hf_config.h"
#include "model/models.h"

namespace weft {
namespace {

constexpr double kInitStd = 0.02;

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

const std::string kEmbed(dims::kEmbed);
const std::vector<std::string> kVocabEmbed = {std::string(dims::kVocab), kEmbed};

// A weight [out, in]; `module` is "wo." or, for the module's own weight, "".
struct Weight {
  std::string module;
  Shape shape;
  std::vector<std::string> dims;
  double std;
};

class Llama {
 public:
  Llama(const ModelSpec& spec, const BuildOptions& options) : s_(spec), m_(spec, options) {}

  BuiltModel build() {
    m_.enter("tok_embeddings");
    const Shape shape = {s_.vocab_size, s_.dim};
    const std::vector<std::string> repeated =
        s_.tie_embeddings ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{};
    Value* table = m_.param({"weight", shape, kVocabEmbed, Init::Normal, kInitStd,
                             all_rows("model.embed_tokens.weight", shape), repeated});
    Value* x = m_.add(kEmbedding, {m_.tokens(), table});
    for (int64_t layer = 0; layer < s_.n_layers; ++layer) x = block(x, layer);
    x = norm(x, "norm", "model.norm");
    m_.enter("output");
    if (s_.tie_embeddings) return m_.finish(m_.add(kMatmul, {x, table}, {{"tb", true}}, "logits"));
    return m_.finish(project(x, {"", shape, kVocabEmbed, kInitStd},
                             all_rows("lm_head.weight", shape), "logits"));
  }

 private:
  Value* block(Value* x, int64_t layer) {
    const std::string path = block_path(layer);
    const std::string hf = cat("model.layers.", layer);

    Value* y = norm(x, path + ".attention_norm", hf + ".input_layernorm");
    m_.enter(path + ".attention");
    y = attention(y, hf + ".self_attn");
    m_.enter(path);
    x = m_.add(kAdd, {x, y}, {}, "mid");

    y = norm(x, path + ".ffn_norm", hf + ".post_attention_layernorm");
    m_.enter(path + ".feed_forward");
    y = feed_forward(y, hf + ".mlp");
    m_.enter(path);
    return m_.add(kAdd, {x, y}, {}, "out");
  }

  Value* attention(Value* x, const std::string& hf) {
    const int64_t q = s_.n_heads * s_.head_dim;
    const int64_t kv = s_.n_kv_heads * s_.head_dim;
    const std::vector<NamedRows> rows = {{hf + ".q_proj.weight", 0, q},
                                         {hf + ".k_proj.weight", q, kv},
                                         {hf + ".v_proj.weight", q + kv, kv}};
    Value* w =
        weight_param({"wqkv.", {q + 2 * kv, s_.dim}, {m_.qkv_dim(q, kv), kEmbed}, kInitStd}, rows);
    Value* y = m_.add(kMatmul, {x, m_.repeat_kv(w)}, {{"tb", true}}, "qkv");
    std::vector<Value*> rotated = {y};
    if (m_.positions() != nullptr) rotated.push_back(m_.positions());
    y = m_.add(kRope, rotated,
               {{"heads", s_.n_heads + m_.kv_heads()},
                {"head_dim", s_.head_dim},
                {"theta", s_.rope_theta},
                {"factor", s_.rope_scaling.factor},
                {"low_freq_factor", s_.rope_scaling.low_freq_factor},
                {"high_freq_factor", s_.rope_scaling.high_freq_factor},
                {"original_max_position", s_.rope_scaling.original_max_position}},
               "rope");
    y = m_.attention(y);
    const Shape shape = {s_.dim, q};
    return project(y, {"wo.", shape, {kEmbed, std::string(dims::kHeads)}, residual_std()},
                   all_rows(hf + ".o_proj.weight", shape), "out");
  }

  Value* feed_forward(Value* x, const std::string& hf) {
    const int64_t f = s_.ffn_dim;
    const std::vector<NamedRows> rows = {{hf + ".gate_proj.weight", 0, f},
                                         {hf + ".up_proj.weight", f, f}};
    const std::vector<std::string> dims = {dims::packed(dims::kFfn, {f, f}), kEmbed};
    Value* y = project(x, {"w13.", {2 * f, s_.dim}, dims, kInitStd}, rows, "gate_up");
    y = m_.add(kSwiglu, {y}, {}, "swiglu");
    const Shape shape = {s_.dim, f};
    return project(y, {"w2.", shape, {kEmbed, std::string(dims::kFfn)}, residual_std()},
                   all_rows(hf + ".down_proj.weight", shape), "down");
  }

  Value* norm(Value* x, const std::string& path, const std::string& hf) {
    m_.enter(path);
    Value* weight =
        m_.param({"weight", {s_.dim}, {kEmbed}, Init::Ones, 0, all_rows(hf + ".weight", {s_.dim})});
    return m_.add(kRmsNorm, {x, weight}, {{"eps", s_.norm_eps}});
  }

  // x W^T
  Value* project(Value* x, const Weight& weight, std::vector<NamedRows> rows,
                 std::string_view result) {
    return m_.add(kMatmul, {x, weight_param(weight, std::move(rows))}, {{"tb", true}}, result);
  }

  Value* weight_param(const Weight& weight, std::vector<NamedRows> rows) {
    return m_.param({weight.module + "weight", weight.shape, weight.dims, Init::Normal, weight.std,
                     std::move(rows)});
  }

  double residual_std() const {
    return kInitStd / std::sqrt(2.0 * static_cast<double>(s_.n_layers));
  }

  const ModelSpec& s_;
  ModelBuilder m_;
};

BuiltModel build(const ModelSpec& spec, const BuildOptions& options) {
  return Llama(spec, options).build();
}

ModelSpec from_hf(const HfReader& hf) {
  hf.require_text("hidden_act", {"silu"});
  hf.require_flag("attention_bias", false);
  hf.require_flag("mlp_bias", false);
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
  spec.head_dim =
      hf.has("head_dim") ? hf.size("head_dim") : hf.quotient("hidden_size", "num_attention_heads");
  hf.read_rope(spec);
  return spec;
}

void to_hf(const ModelSpec& spec, HfWriter& hf) {
  hf.set_list("architectures", {"LlamaForCausalLM"});
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
  hf.set("mlp_bias", false);
  hf.set("num_attention_heads", spec.n_heads);
  hf.set("num_hidden_layers", spec.n_layers);
  hf.set("num_key_value_heads", spec.n_kv_heads);
  hf.set("rms_norm_eps", spec.norm_eps);
  hf.set_rope(spec);
  hf.set("tie_word_embeddings", spec.tie_embeddings);
}

constexpr std::array<std::string_view, 3> kOwnKeys = {"model.n_kv_heads", "model.rope_theta",
                                                      "model.rope_scaling"};
// Written by older transformers; derived from theta.
constexpr std::array<std::string_view, 1> kSkippedWeights = {".rotary_emb.inv_freq"};

}  // namespace

constinit const ModelDef kLlama = {.name = "llama",
                                   .presets = presets,
                                   .check = check,
                                   .build = build,
                                   .hf_model_type = "llama",
                                   .from_hf = from_hf,
                                   .to_hf = to_hf,
                                   .ffn_multiple = 256,
                                   .own_keys = kOwnKeys,
                                   .weight_prefix = "model.",
                                   .skipped_weights = kSkippedWeights};

}  // namespace weft
