// GPT-2: learned positions, LayerNorm before each sublayer, one fused q|k|v projection, a GELU
// feed-forward, dropout on embeddings, attention probabilities and both residual branches. Weights
// are [in, out], as Hugging Face stores them.
//
//   B batch   T sequence   C dim = heads x D   F ffn_dim   V vocab_size   P max_seq_len
//   tokens [B,T] -> x [B,T,C] -> layers: qkv [B,T,3C], feed-forward [B,T,F] -> logits [B,T,V]
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
  int64_t dim, n_layers, n_heads;
};

ModelSpec preset(const Size& size) {
  return {.model = "gpt2",
          .flavor = size.flavor,
          .vocab_size = 50257,
          .dim = size.dim,
          .n_layers = size.n_layers,
          .n_heads = size.n_heads,
          .n_kv_heads = size.n_heads,
          .head_dim = size.dim / size.n_heads,
          .ffn_dim = 4 * size.dim,
          .max_seq_len = 1024};
}

std::vector<ModelSpec> make_presets() {
  ModelSpec tiny = preset({"tiny", 64, 2, 4});
  tiny.vocab_size = 256;
  tiny.max_seq_len = 64;
  ModelSpec baby = preset({"baby", 384, 6, 6});  // nanoGPT's character-level Shakespeare model
  baby.vocab_size = 65;
  baby.max_seq_len = 256;
  baby.dropout = 0.2;
  baby.bias = false;
  return {tiny,
          baby,
          preset({"124M", 768, 12, 12}),
          preset({"350M", 1024, 24, 16}),
          preset({"774M", 1280, 36, 20}),
          preset({"1558M", 1600, 48, 25})};
}

std::span<const ModelSpec> presets() {
  static const std::vector<ModelSpec> list = make_presets();
  return list;
}

void check(const ModelSpec& spec) {
  CHECK(spec.n_kv_heads == spec.n_heads, spec.n_kv_heads, " ", spec.n_heads);
  CHECK(spec.n_heads * spec.head_dim == spec.dim, spec.n_heads, " ", spec.head_dim);
}

const std::string kEmbed(dims::kEmbed);
const std::vector<std::string> kVocabEmbed = {std::string(dims::kVocab), kEmbed};

// One projection: its names here and at Hugging Face, and the name of its result.
struct Projection {
  std::string name;
  std::string hf;
  Shape shape;  // [in, out]
  std::vector<std::string> dims;
  double std;
  std::string_view result;
};

class Gpt2 {
 public:
  Gpt2(const ModelSpec& spec, const BuildOptions& options) : s_(spec), m_(spec, options) {}

  BuiltModel build() {
    Value* wte = nullptr;
    Value* x = embed(wte);
    for (int64_t layer = 0; layer < s_.n_layers; ++layer) x = block(x, layer);
    x = norm(x, "norm", "transformer.ln_f");
    m_.enter("output");
    Value* head = s_.tie_embeddings ? wte : head_weight();
    return m_.finish(m_.add(kMatmul, {x, head}, {{"tb", true}}, "logits"));
  }

 private:
  Value* embed(Value*& wte) {
    m_.enter("tok_embeddings");
    const Shape tokens = {s_.vocab_size, s_.dim};
    const std::vector<std::string> repeated =
        s_.tie_embeddings ? std::vector<std::string>{"lm_head.weight"} : std::vector<std::string>{};
    wte = m_.param({"weight", tokens, kVocabEmbed, Init::Normal, kInitStd,
                    all_rows("transformer.wte.weight", tokens), repeated});
    Value* x = m_.add(kEmbedding, {m_.tokens(), wte});
    m_.enter("pos_embeddings");
    const Shape positions = {s_.max_seq_len, s_.dim};
    Value* wpe = m_.param({"weight",
                           positions,
                           {std::string(dims::kPositions), kEmbed},
                           Init::Normal,
                           kInitStd,
                           all_rows("transformer.wpe.weight", positions)});
    if (m_.positions() == nullptr) return m_.dropout(m_.add(kAddPositions, {x, wpe}));
    Value* rows = m_.add(kEmbedding, {m_.positions(), wpe}, {}, "rows");
    return m_.dropout(m_.add(kAdd, {x, rows}));
  }

  Value* block(Value* x, int64_t layer) {
    const std::string path = block_path(layer);
    const std::string hf = cat("transformer.h.", layer);
    const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(s_.n_layers));

    Value* y = norm(x, path + ".attention_norm", hf + ".ln_1");
    m_.enter(path + ".attention");
    const std::vector<int64_t> qkv(3, s_.dim);
    y = project(y, {"wqkv",
                    hf + ".attn.c_attn",
                    {s_.dim, 3 * s_.dim},
                    {kEmbed, dims::packed(dims::kHeads, qkv)},
                    kInitStd,
                    "qkv"});
    y = m_.attention(y);
    y = project(y, {"wo",
                    hf + ".attn.c_proj",
                    {s_.dim, s_.dim},
                    {std::string(dims::kHeads), kEmbed},
                    residual_std,
                    "out"});
    y = m_.dropout(y);
    m_.enter(path);
    x = m_.add(kAdd, {x, y}, {}, "mid");

    y = norm(x, path + ".ffn_norm", hf + ".ln_2");
    m_.enter(path + ".feed_forward");
    const std::string ffn(dims::kFfn);
    y = project(y, {"w1", hf + ".mlp.c_fc", {s_.dim, s_.ffn_dim}, {kEmbed, ffn}, kInitStd, "up"});
    y = m_.add(kGelu, {y}, {}, "gelu");
    y = project(
        y, {"w2", hf + ".mlp.c_proj", {s_.ffn_dim, s_.dim}, {ffn, kEmbed}, residual_std, "down"});
    y = m_.dropout(y);
    m_.enter(path);
    return m_.add(kAdd, {x, y}, {}, "out");
  }

  Value* norm(Value* x, const std::string& path, const std::string& hf) {
    m_.enter(path);
    std::vector<Value*> operands = {x};
    with_bias(operands,
              {"weight", {s_.dim}, {kEmbed}, Init::Ones, 0, all_rows(hf + ".weight", {s_.dim})});
    return m_.add(kLayerNorm, operands, {{"eps", s_.norm_eps}});
  }

  // x W (+ b)
  Value* project(Value* x, const Projection& p) {
    std::vector<Value*> operands = {x};
    with_bias(operands, {p.name + ".weight", p.shape, p.dims, Init::Normal, p.std,
                         all_rows(p.hf + ".weight", p.shape)});
    return m_.add(kMatmul, operands, {}, p.result);
  }

  // Appends a weight and, in a model with biases, the bias of its last dimension.
  void with_bias(std::vector<Value*>& operands, ParamInfo weight) {
    const Shape shape = {weight.shape.back()};
    const std::vector<std::string> dims = {weight.dims.back()};
    const auto bias_of = [](std::string name) {
      return name.replace(name.size() - std::string_view("weight").size(), std::string::npos,
                          "bias");
    };
    const std::string name = bias_of(weight.name);
    const std::string hf = bias_of(weight.slices.front().name);
    if (!s_.bias) weight.zeros = {{hf, shape}};
    operands.push_back(m_.param(std::move(weight)));
    if (s_.bias)
      operands.push_back(m_.param({name, shape, dims, Init::Zeros, 0, all_rows(hf, shape)}));
  }

  Value* head_weight() {
    const Shape shape = {s_.vocab_size, s_.dim};
    return m_.param(
        {"weight", shape, kVocabEmbed, Init::Normal, kInitStd, all_rows("lm_head.weight", shape)});
  }

  const ModelSpec& s_;
  ModelBuilder m_;
};

BuiltModel build(const ModelSpec& spec, const BuildOptions& options) {
  return Gpt2(spec, options).build();
}

ModelSpec from_hf(const HfReader& hf) {
  hf.require_text("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  hf.require_flag("scale_attn_weights", true);
  hf.require_flag("scale_attn_by_inverse_layer_idx", false);
  hf.require_flag("add_cross_attention", false);
  ModelSpec spec = {.vocab_size = hf.size("vocab_size"),
                    .dim = hf.size("n_embd"),
                    .n_layers = hf.size("n_layer"),
                    .n_heads = hf.size("n_head"),
                    .max_seq_len = hf.size("n_positions"),
                    .norm_eps = hf.number_or("layer_norm_epsilon", 1e-5),
                    .dropout = hf.number_or("resid_pdrop", 0.1),
                    .bias = hf.flag_or("bias", true),
                    .tie_embeddings = hf.flag_or("tie_word_embeddings", true)};
  for (const char* key : {"embd_pdrop", "attn_pdrop"}) {
    if (hf.number_or(key, 0.1) != spec.dropout) {
      hf.refuse(cat(key, " = ", format_double(hf.number_or(key, 0.1)),
                    " differs from resid_pdrop = ", format_double(spec.dropout),
                    "; one dropout rate is supported"));
    }
  }
  spec.n_kv_heads = spec.n_heads;
  spec.head_dim = hf.quotient("n_embd", "n_head");
  spec.ffn_dim = hf.has("n_inner") ? hf.size("n_inner") : 4 * spec.dim;
  return spec;
}

void to_hf(const ModelSpec& spec, HfWriter& hf) {
  hf.set_list("architectures", {"GPT2LMHeadModel"});
  hf.set("activation_function", "gelu_new");
  hf.set("attn_pdrop", spec.dropout);
  // Not a field of transformers, where the file stores zeros as biases.
  if (!spec.bias) hf.set("bias", false);
  hf.set_token_ids("bos_token_id", spec.bos_token_ids);
  hf.set("embd_pdrop", spec.dropout);
  hf.set_token_ids("eos_token_id", spec.eos_token_ids);
  hf.set("initializer_range", kInitStd);
  hf.set("layer_norm_epsilon", spec.norm_eps);
  hf.set("n_embd", spec.dim);
  hf.set("n_head", spec.n_heads);
  hf.set("n_inner", spec.ffn_dim);
  hf.set("n_layer", spec.n_layers);
  hf.set("n_positions", spec.max_seq_len);
  hf.set("resid_pdrop", spec.dropout);
  hf.set("tie_word_embeddings", spec.tie_embeddings);
}

constexpr std::array<std::string_view, 2> kOwnKeys = {"model.dropout", "model.bias"};
// The causal mask, stored like a weight.
constexpr std::array<std::string_view, 2> kSkippedWeights = {".attn.bias", ".attn.masked_bias"};

}  // namespace

constinit const ModelDef kGpt2 = {.name = "gpt2",
                                  .presets = presets,
                                  .check = check,
                                  .build = build,
                                  .hf_model_type = "gpt2",
                                  .from_hf = from_hf,
                                  .to_hf = to_hf,
                                  .own_keys = kOwnKeys,
                                  .weight_prefix = "transformer.",
                                  .skipped_weights = kSkippedWeights};

}  // namespace weft
