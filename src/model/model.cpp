#include "model/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "graph/ops/ops.h"
#include "model/hf_config.h"
#include "model/models.h"

namespace weft {
namespace {

// Limits that keep every multiplication of sizes far from overflow; no real model comes close.
constexpr int64_t kMaxDim = 1 << 20;
constexpr int64_t kMaxFfnDim = 1 << 24;
constexpr int64_t kMaxLayers = 10000;
constexpr int64_t kMaxExperts = 1 << 14;
constexpr int64_t kMaxTokenIds = (int64_t{1} << 31) - 1;

constexpr std::array<const ModelDef*, 6> kModels = {&kGpt2,     &kLlama,      &kQwen3,
                                                    &kQwen3Moe, &kDeepseekV3, &kLlama4};

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::optional<std::string> near = nearest(name, known);
  if (near) return cat("; did you mean \"", *near, "\"?");
  return cat("; choose from ", join(known, ", "));
}

// The sizes in the config.json of a Hugging Face folder.
ModelSpec flavor_of_folder(const ModelDef& def, const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  ModelSpec spec = read_hf_config(path);
  USER_CHECK(spec.model == def.name, path, ": describes a ", spec.model, ", expected a ", def.name,
             "; set model.name = \"", spec.model, "\"");
  spec.flavor = folder;
  return spec;
}

ModelSpec find_preset(const ModelDef& def, const std::string& flavor) {
  if (flavor.find('/') != std::string::npos) return flavor_of_folder(def, flavor);
  std::vector<std::string> known;
  for (const ModelSpec& spec : def.presets()) {
    if (spec.flavor == flavor) return spec;
    known.push_back(spec.flavor);
  }
  throw UserError(ExitCode::Config,
                  cat("model.flavor = ", in_quotes(flavor), " is not a flavor of ", def.name,
                      did_you_mean(flavor, known)));
}

int64_t resolve_vocab(const ModelConfig& config, const ModelSpec& preset, int64_t data_vocab) {
  const int64_t vocab = config.vocab_size.value_or(preset.vocab_size);
  if (vocab != kVocabularyOfData) return vocab;
  USER_CHECK(data_vocab > 0,
             "model.vocab_size = -1 takes the vocabulary of the training data, which does not "
             "state one; set a number");
  return data_vocab;
}

RopeScaling resolve_scaling(const ModelConfig& config, const ModelSpec& preset) {
  if (!config.rope_scaling) return preset.rope_scaling;
  if (*config.rope_scaling == "none") return {};
  const bool yarn = *config.rope_scaling == "yarn";
  USER_CHECK(yarn || *config.rope_scaling == "llama3", "model.rope_scaling = \"",
             *config.rope_scaling, "\" is unknown; choose from none, llama3, yarn");
  const RopeScaling& own = preset.rope_scaling;
  if (own.factor > 0 && own.yarn == yarn) return own;
  if (!yarn) return {.factor = 8};
  return {.factor = 40,
          .high_freq_factor = 32,
          .original_max_position = 4096,
          .yarn = true,
          .mscale = 1,
          .mscale_all_dim = 1};
}

// YaRN's factor for longer contexts.
double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

void check_scaling(const RopeScaling& scaling) {
  if (scaling.factor == 0) return;
  const auto usable = [](double x) { return x >= 0 && std::isfinite(x); };
  USER_CHECK(scaling.factor >= 1 && std::isfinite(scaling.factor) && scaling.low_freq_factor > 0 &&
                 std::isfinite(scaling.high_freq_factor) &&
                 scaling.high_freq_factor >= scaling.low_freq_factor,
             "model.rope_scaling: expected a factor of 1 or more and a high frequency factor of at "
             "least a positive low one, found ",
             format_double(scaling.factor), ", ", format_double(scaling.high_freq_factor), ", ",
             format_double(scaling.low_freq_factor));
  USER_CHECK(
      usable(scaling.attention_factor) && usable(scaling.mscale) && usable(scaling.mscale_all_dim),
      "model.rope_scaling: attention_factor, mscale and mscale_all_dim are ",
      format_double(scaling.attention_factor), ", ", format_double(scaling.mscale), " and ",
      format_double(scaling.mscale_all_dim), "; expected positive numbers");
}

// Lists of layers have one entry per layer.
void check_layers(const ModelSpec& spec) {
  for (const std::vector<int64_t>* list :
       {&spec.attention_layers.rope, &spec.attention_layers.chunked}) {
    USER_CHECK(list->empty() || std::ssize(*list) == spec.n_layers,
               "model.n_layers = ", spec.n_layers, ", but the model's list of layers has ",
               list->size(), "; change the list in its config.json");
  }
}

// The part of an expert's weights that a token is multiplied with, on average.
double active_share(const Node& grouped_matmul) {
  const Node& route = *grouped_matmul.operand("offsets")->def;
  const auto choices = static_cast<double>(row_length(route.operand("index")->type));
  return choices / static_cast<double>(std::get<int64_t>(route.attr("experts")));
}

void check_range(std::string_view key, int64_t value, int64_t max) {
  USER_CHECK(value >= 1 && value <= max, "model.", key, " = ", value,
             " is out of range; expected 1 to ", max);
}

void check_experts(const Experts& experts) {
  if (experts.count == 0) return;
  check_range("n_experts", experts.count, kMaxExperts);
  check_range("expert_ffn_dim", experts.ffn_dim, kMaxFfnDim);
  check_range("experts_per_token", experts.top_k, experts.count);
  const auto groups = experts.groups, kept = experts.keep_groups;
  USER_CHECK(groups > 0 && experts.count % groups == 0, groups, " groups do not divide ",
             experts.count, " experts");
  USER_CHECK(kept > 0 && kept <= groups && experts.count / groups * kept >= experts.top_k,
             "keeping ", kept, " of ", groups, " groups of experts leaves ",
             experts.count / groups * kept, " to choose ", experts.top_k, " from");
  USER_CHECK(std::isfinite(experts.scale) && experts.scale > 0, "the scale of expert weights is ",
             format_double(experts.scale), ", expected a positive number");
  USER_CHECK(experts.shared_ffn_dim <= kMaxFfnDim, "the shared experts are ",
             experts.shared_ffn_dim, " wide; expected at most ", kMaxFfnDim);
  USER_CHECK(experts.step > 0 && experts.first_layers >= 0, "experts in every ", experts.step,
             "th layer from ", experts.first_layers, " on, expected positive numbers");
}

void check_latent(const LatentAttention& latent, int64_t n_heads) {
  for (const int64_t rank : {latent.q_rank, latent.kv_rank}) {
    USER_CHECK(rank >= 0 && rank <= kMaxDim, "latent attention of rank ", rank,
               "; expected at most ", kMaxDim);
  }
  USER_CHECK(latent.value_dim >= 0 && latent.value_dim <= kMaxDim / n_heads, "latent values of ",
             latent.value_dim, " elements per head; expected at most ", kMaxDim / n_heads);
}

}  // namespace

double RopeScaling::magnitude() const {
  if (factor == 0 || !yarn) return 1;
  if (attention_factor > 0) return attention_factor;
  if (mscale > 0 && mscale_all_dim > 0) {
    return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim);
  }
  return yarn_mscale(factor, 1);
}

double RopeScaling::score_factor() const {
  if (factor == 0 || mscale_all_dim == 0) return 1;
  const double m = yarn_mscale(factor, mscale_all_dim);
  return m * m;
}

bool AttentionLayers::has_rope(int64_t layer) const {
  if (!rope.empty()) return rope.at(static_cast<size_t>(layer)) != 0;
  return no_rope_interval == 0 || (layer + 1) % no_rope_interval != 0;
}

int64_t AttentionLayers::chunk_of(int64_t layer) const {
  const bool has = chunked.empty() ? has_rope(layer) : chunked.at(static_cast<size_t>(layer)) != 0;
  return has ? chunk : 0;
}

bool Experts::in_layer(int64_t layer) const {
  const bool is_listed =
      std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
  return count > 0 && layer >= first_layers && (layer + 1) % step == 0 && !is_listed;
}

int64_t row_elements(const ParamInfo& param) {
  return param.shape.size() == 1 ? 1 : param.shape.back();
}

Shape slice_shape(const ParamInfo& param, const NamedRows& rows) {
  if (rows.count * row_elements(param) == count(param.shape)) return param.shape;
  return param.shape.size() == 1 ? Shape{rows.count} : Shape{rows.count, param.shape.back()};
}

std::span<const ModelDef* const> all_models() {
  return kModels;
}

const ModelDef& find_model(std::string_view name) {
  const auto at = std::find_if(kModels.begin(), kModels.end(),
                               [&](const ModelDef* def) { return def->name == name; });
  CHECK(at != kModels.end(), name);
  return **at;
}

ModelSpec resolve_model(const ModelConfig& config, int64_t data_vocab) {
  const ModelDef& def = find_model(config.name);
  const ModelSpec preset = find_preset(def, config.flavor);

  ModelSpec spec = preset;
  spec.vocab_size = resolve_vocab(config, preset, data_vocab);
  for (std::vector<int64_t>* ids : {&spec.bos_token_ids, &spec.eos_token_ids}) {
    std::erase_if(*ids, [&](int64_t id) { return id >= spec.vocab_size; });
  }
  spec.dim = config.dim.value_or(preset.dim);
  spec.n_layers = config.n_layers.value_or(preset.n_layers);
  spec.n_heads = config.n_heads.value_or(preset.n_heads);
  const bool all_heads = preset.n_kv_heads == preset.n_heads;
  spec.n_kv_heads = config.n_kv_heads.value_or(all_heads ? spec.n_heads : preset.n_kv_heads);
  check_range("dim", spec.dim, kMaxDim);
  check_range("n_heads", spec.n_heads, kMaxDim);
  const bool follows =  // else a size of its own
      preset.head_dim * preset.n_heads == preset.dim && preset.latent.kv_rank == 0;
  if (follows && (config.dim || config.n_heads)) {
    USER_CHECK(spec.dim % spec.n_heads == 0, "model.n_heads = ", spec.n_heads,
               " does not divide model.dim = ", spec.dim, "; choose a divisor");
    spec.head_dim = spec.dim / spec.n_heads;
  }
  if (config.dim) {
    const int64_t block = preset.dim * def.ffn_multiple;
    const int64_t blocks = (preset.ffn_dim * spec.dim + block - 1) / block;
    spec.ffn_dim = blocks * def.ffn_multiple;
  }
  spec.ffn_dim = config.ffn_dim.value_or(spec.ffn_dim);
  Experts& experts = spec.experts;
  experts.count = config.n_experts.value_or(experts.count);
  experts.top_k = config.experts_per_token.value_or(experts.top_k);
  experts.ffn_dim = config.expert_ffn_dim.value_or(experts.ffn_dim);
  // A shared expert is as wide as some of the others.
  if (experts.shared_ffn_dim > 0) {
    experts.shared_ffn_dim =
        preset.experts.shared_ffn_dim / preset.experts.ffn_dim * experts.ffn_dim;
  }
  spec.max_seq_len = config.max_seq_len.value_or(preset.max_seq_len);
  spec.norm_eps = config.norm_eps.value_or(preset.norm_eps);
  spec.dropout = config.dropout.value_or(preset.dropout);
  spec.bias = config.bias.value_or(preset.bias);
  spec.tie_embeddings = config.tie_embeddings.value_or(preset.tie_embeddings);
  spec.rope_theta = config.rope_theta.value_or(preset.rope_theta);
  spec.rope_scaling = resolve_scaling(config, preset);
  check_model(spec);
  const auto sizes = [](const ModelSpec& s) {
    return std::make_tuple(s.dim, s.n_layers, s.n_heads, s.n_kv_heads, s.ffn_dim, s.experts);
  };
  if (sizes(spec) != sizes(preset)) spec.flavor = cat("(changed from ", preset.flavor, ")");
  return spec;
}

void check_model(const ModelSpec& spec) {
  check_range("vocab_size", spec.vocab_size, kMaxTokenIds);
  check_range("dim", spec.dim, kMaxDim);
  check_range("n_layers", spec.n_layers, kMaxLayers);
  check_range("n_heads", spec.n_heads, kMaxDim);
  check_range("n_kv_heads", spec.n_kv_heads, kMaxDim);
  check_range("head_dim", spec.head_dim, kMaxDim / spec.n_heads);
  check_range("ffn_dim", spec.ffn_dim, kMaxFfnDim);
  check_range("max_seq_len", spec.max_seq_len, kMaxTokenIds);
  USER_CHECK(spec.n_heads % spec.n_kv_heads == 0, "model.n_kv_heads = ", spec.n_kv_heads,
             " does not divide model.n_heads = ", spec.n_heads, "; choose a divisor");
  USER_CHECK(spec.norm_eps > 0 && spec.norm_eps < 1,
             "model.norm_eps = ", format_double(spec.norm_eps),
             " is out of range; expected above 0 and below 1");
  USER_CHECK(spec.dropout >= 0 && spec.dropout < 1, "model.dropout = ", format_double(spec.dropout),
             " is out of range; expected 0 or more and below 1");
  USER_CHECK(spec.rope_theta >= 1 && std::isfinite(spec.rope_theta),
             "model.rope_theta = ", format_double(spec.rope_theta),
             " is out of range; expected 1 or more");
  check_scaling(spec.rope_scaling);
  check_layers(spec);
  check_experts(spec.experts);
  check_latent(spec.latent, spec.n_heads);
  find_model(spec.model).check(spec);
}

BuiltModel build_model(const ModelSpec& spec, const BuildOptions& options) {
  check_model(spec);
  const int64_t length = options.seq_len - options.padding;
  USER_CHECK(length <= spec.max_seq_len, "training.seq_len = ", length,
             " is longer than the model's table of ", spec.max_seq_len,
             " positions; lower it or raise model.max_seq_len");
  return find_model(spec.model).build(spec, options);
}

int64_t num_params(std::span<const ParamInfo> params) {
  int64_t total = 0;
  for (const ParamInfo& param : params) total += count(param.shape);
  return total;
}

int64_t num_multiplied_params(const BuiltModel& model) {
  int64_t total = 0;
  for (const auto& node : model.graph.order()) {
    if (node->op != &kParam) continue;
    const auto& users = node->result()->users;
    const bool looked_up = std::all_of(users.begin(), users.end(), [](const Node* user) {
      return user->op == &kEmbedding || user->op == &kAddPositions;
    });
    if (looked_up) continue;
    const bool by_experts = users.front()->op == &kGroupedMatmul;
    const auto elements = static_cast<double>(node->result()->type.elements());
    total += by_experts ? std::llround(active_share(*users.front()) * elements)
                        : node->result()->type.elements();
  }
  return total;
}

}  // namespace weft
