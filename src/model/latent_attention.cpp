// Multi-head latent attention, of DeepSeek-V2 and V3. Both down projections are one parameter; the
// latents and the shared part of the keys belong to no head.
//
//   C dim   H heads   R q rank   L kv rank   N own part of a key   S shared part   V value_dim
//   x [B,T,C] -> q latent | kv latent | shared [B,T,R+L+S] -> q [B,T,H(N+S)], kv [B,T,H(N+V)]
//     -> qkv [B,T,H(N+S) + H(N+S) + HV] -> mix [B,T,HV]
#include <cmath>

#include "graph/dims.h"
#include "graph/ops/ops.h"
#include "model/decoder_layers.h"

namespace weft {
namespace {

const std::string kEmbed(dims::kEmbed);
const std::string kHeads(dims::kHeads);
const std::string kLatent(dims::kLatent);

// Whatever the model's other norms use.
constexpr double kLatentNormEps = 1e-6;

}  // namespace

Value* DecoderLayers::latent_attention(Value* x, const std::string& hf) {
  const LatentAttention& a = s_.latent;
  const int64_t heads = s_.n_heads;
  const Latents from = latents(x, hf);
  const Shape q_shape = {heads * s_.head_dim, a.q_rank > 0 ? a.q_rank : s_.dim};
  const std::string q_name = a.q_rank > 0 ? "q_b" : "q";
  Value* q = project(
      from.q, {cat("w", q_name, "."), q_shape, {kHeads, a.q_rank > 0 ? kLatent : kEmbed}, kInitStd},
      all_rows(cat(hf, ".", q_name, "_proj.weight"), q_shape), "q");
  q = rope(q, heads, s_.head_dim, a.rotary_dim, "q.rope");
  const Shape kv_shape = {heads * (a.own_dim + a.value_dim), a.kv_rank};
  Value* kv = project(from.kv, {"wkv_b.", kv_shape, {kHeads, kLatent}, kInitStd},
                      all_rows(hf + ".kv_b_proj.weight", kv_shape), "kv");
  Value* key = rope(from.key, 1, a.rotary_dim, 0, "key.rope");
  Value* qkv = m_.add(kLatentQkv, {q, kv, key}, {{"heads", heads}}, "qkv");
  const double factor = s_.rope_scaling.score_factor();
  const AttentionOptions options = {
      .value_dim = a.value_dim == s_.head_dim ? 0 : a.value_dim,
      .scale = factor == 1 ? 0 : factor / std::sqrt(static_cast<double>(s_.head_dim))};
  const Shape shape = {s_.dim, heads * a.value_dim};
  return project(m_.attention(qkv, options), {"wo.", shape, {kEmbed, kHeads}, residual_std()},
                 all_rows(hf + ".o_proj.weight", shape), "out");
}

DecoderLayers::Latents DecoderLayers::latents(Value* x, const std::string& hf) {
  const LatentAttention& a = s_.latent;
  const int64_t kv_rows = a.kv_rank + a.rotary_dim;
  std::vector<NamedRows> rows = {{hf + ".kv_a_proj_with_mqa.weight", a.q_rank, kv_rows}};
  std::vector<ModelBuilder::Columns> parts = {{"kv_latent", a.kv_rank}, {"key", a.rotary_dim}};
  if (a.q_rank > 0) {
    rows.insert(rows.begin(), {hf + ".q_a_proj.weight", 0, a.q_rank});
    parts.insert(parts.begin(), {"q_latent", a.q_rank});
  }
  Value* down = project(x, {"wa.", {a.q_rank + kv_rows, s_.dim}, {kLatent, kEmbed}, kInitStd},
                        std::move(rows), "latents");
  std::vector<Value*> values = m_.split_columns(down, parts);
  Value* q = x;
  if (a.q_rank > 0) {
    q = latent_norm(values.front(), "q_norm", hf + ".q_a_layernorm");
    values.erase(values.begin());
  }
  return {q, latent_norm(values[0], "kv_norm", hf + ".kv_a_layernorm"), values[1]};
}

Value* DecoderLayers::latent_norm(Value* x, const std::string& name, const std::string& hf) {
  Value* weight = norm_weight(name + ".weight", x->type.shape.back(), dims::kLatent, hf);
  return m_.add(kRmsNorm, {x, weight}, {{"eps", kLatentNormEps}}, name);
}

}  // namespace weft
