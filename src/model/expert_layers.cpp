// The feed-forward of a layer as a mixture of experts.
//
//   E experts   k of them per token   F ffn_dim of an expert   R rows, one per token and choice
//   x [B,T,C] -> logits [B,T,E] -> rows [1,1,R,C] -> gate|up [1,1,R,2F] -> rows -> y [B,T,C]
#include "graph/dims.h"
#include "graph/ops/ops.h"
#include "model/decoder_layers.h"

namespace weft {
namespace {

const std::string kEmbed(dims::kEmbed), kFfn(dims::kFfn), kExpertDim(dims::kExperts);

}  // namespace

Value* DecoderLayers::experts(Value* x, const std::string& hf) {
  const Experts& e = s_.experts;
  const std::string module = m_.path();
  const std::string router = cat(hf, ".", names_.router);
  const Shape shape = {e.count, s_.dim};
  Value* gate = weight({"gate.", shape, {std::string(dims::kChoices), kEmbed}, kInitStd},
                       all_rows(router + ".weight", shape));
  // Choices are made in f32, whatever the dtype of x.
  Value* logits = m_.add(kMatmul, {x, gate}, {{"tb", true}, {"out", std::string("f32")}}, "logits");
  std::vector<Value*> scored = {logits};
  if (e.has_bias) scored.push_back(router_bias(router));
  const std::vector<Value*> chosen = m_.add_all(kRouter, std::move(scored),
                                                {{"top_k", e.top_k},
                                                 {"sigmoid", e.sigmoid},
                                                 {"normalize", e.normalize},
                                                 {"groups", e.groups},
                                                 {"keep_groups", e.keep_groups},
                                                 {"scale", e.scale}},
                                                "weights");
  m_.add_router_loss(logits, chosen[1], e.sigmoid);
  const int64_t slots = chosen[1]->type.elements();  // a row for every choice
  const std::vector<Value*> places =
      m_.add_all(kRoute, {chosen[1]}, {{"experts", e.count}, {"slots", slots}}, "offsets");
  Value* at = places[1];
  m_.count_choices({chosen[1], at, e.count});
  ExpertInput input{.rows = nullptr, .offsets = places[0], .weights = nullptr};
  if (e.weighs_input) {
    Value* weighted = m_.add(kScaleRows, {x, chosen[0]}, {}, "weighted");
    input.rows = m_.add(kDispatch, {weighted, at}, {{"slots", slots}}, "rows");
  } else {
    input.rows = m_.add(kDispatch, {x, at}, {{"slots", slots}}, "rows");
    input.weights = m_.add(kDispatchWeights, {chosen[0], at}, {{"slots", slots}}, "row_weights");
  }
  Value* y = m_.add(kCombine, {expert_feed_forward(input, hf + ".experts"), at}, {}, "routed");
  if (e.shared_ffn_dim == 0) return y;
  m_.enter(module + ".shared");
  Value* shared = feed_forward(x, e.shared_ffn_dim, cat(hf, ".", names_.shared_expert));
  m_.enter(module);
  return m_.add(kAdd, {y, shared}, {}, "sum");
}

Value* DecoderLayers::router_bias(const std::string& hf) {
  const Shape shape = {s_.experts.count};
  return m_.param({.name = "gate.bias",
                   .shape = shape,
                   .dims = {std::string(dims::kChoices)},
                   .init = Init::Zeros,
                   .slices = all_rows(hf + ".e_score_correction_bias", shape),
                   .trained = false});
}

Value* DecoderLayers::expert_feed_forward(const ExpertInput& input, const std::string& hf) {
  const Experts& e = s_.experts;
  const int64_t f = e.ffn_dim, c = s_.dim;
  const std::string gates = dims::packed(dims::kFfn, {f, f});
  std::vector<NamedRows> w13, w2;
  for (int64_t i = 0; i < e.count && !names_.stacks_experts; ++i) {
    const std::string expert = cat(hf, ".", i);
    w13.push_back({expert + ".gate_proj.weight", i * 2 * f, f});
    w13.push_back({expert + ".up_proj.weight", i * 2 * f + f, f});
    w2.push_back({expert + ".down_proj.weight", i * c, c});
  }
  const bool stacks = names_.stacks_experts;
  const Weight first =
      stacks ? Weight{"w13.", {e.count, c, 2 * f}, {kExpertDim, kEmbed, gates}, kInitStd}
             : Weight{"w13.", {e.count, 2 * f, c}, {kExpertDim, gates, kEmbed}, kInitStd};
  Value* y = expert_matmul(input, first, w13, hf + ".gate_up_proj", "gate_up");
  y = input.weights == nullptr
          ? m_.add(kSwiglu, {y}, {}, "swiglu")
          : m_.add(kWeightedSwiglu, {y, input.offsets, input.weights}, {}, "swiglu");
  const Weight second =
      stacks ? Weight{"w2.", {e.count, f, c}, {kExpertDim, kFfn, kEmbed}, residual_std()}
             : Weight{"w2.", {e.count, c, f}, {kExpertDim, kEmbed, kFfn}, residual_std()};
  ExpertInput hidden = input;
  hidden.rows = y;
  return expert_matmul(hidden, second, w2, hf + ".down_proj", "down");
}

Value* DecoderLayers::expert_matmul(const ExpertInput& input, const Weight& of,
                                    std::vector<NamedRows> rows, std::string_view stacked,
                                    std::string_view result) {
  const bool stacks = names_.stacks_experts;
  if (stacks) rows = all_rows(std::string(stacked), of.shape);
  Value* w = m_.param({.name = of.module + "weight",
                       .shape = of.shape,
                       .dims = of.dims,
                       .init = Init::Normal,
                       .std = of.std,
                       .slices = std::move(rows),
                       .stacked = stacks ? "" : std::string(stacked)});
  return m_.add(kGroupedMatmul, {input.rows, input.offsets, w}, {{"tb", !stacks}}, result);
}

}  // namespace weft
