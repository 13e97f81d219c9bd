// Models as graphs for one device. A model file defines presets, the forward, and the Hugging Face
// names of its parameters; it never mentions ranks, devices or precision.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "graph/builder.h"

namespace weft {

// Frequency scaling of Llama 3.1, or of YaRN; factor 0 means none.
struct RopeScaling {
  double factor = 0;
  double low_freq_factor = 1;   // YaRN's beta_slow
  double high_freq_factor = 4;  // YaRN's beta_fast
  int64_t original_max_position = 8192;
  bool yarn = false;
  bool truncate = true;
  // 0: not given.
  double attention_factor = 0;
  double mscale = 0;
  double mscale_all_dim = 0;
  bool operator==(const RopeScaling&) const = default;

  // What cosines and sines are multiplied by.
  double magnitude() const;
  // What latent attention multiplies scores by, in addition to 1/sqrt(head size).
  double score_factor() const;
};

// Multi-head latent attention: q, and k and v together, are computed from normed latents, and the
// keys of all heads share a part, the only one that is rotated.
struct LatentAttention {
  int64_t q_rank = 0;   // 0: q is computed without a latent
  int64_t kv_rank = 0;  // 0: the model has no latent attention
  int64_t own_dim = 0;
  int64_t rotary_dim = 0;  // ModelSpec::head_dim is the sum of both
  int64_t value_dim = 0;
  bool operator==(const LatentAttention&) const = default;
};

// How attention differs between layers. Lists say 1 or 0 for each layer.
struct AttentionLayers {
  int64_t no_rope_interval = 0;       // every n-th layer has no rotary positions; 0: none
  std::vector<int64_t> rope = {};     // which layers have them, if there is no such interval
  int64_t chunk = 0;                  // positions that see each other; 0: all
  std::vector<int64_t> chunked = {};  // where; empty: in layers with rotary positions
  double temperature = 0;             // of queries, by position, in layers without rotary ones
  int64_t temperature_floor = 8192;   // positions per step of it
  bool operator==(const AttentionLayers&) const = default;

  bool has_rope(int64_t layer) const;
  // The chunk of this layer; 0: none.
  int64_t chunk_of(int64_t layer) const;
};

// The feed-forward of some layers as a mixture of experts: a router sends every token to a few of
// them (graph/ops/router.cpp).
struct Experts {
  int64_t count = 0;  // 0: the model has none
  int64_t top_k = 1;  // that a token goes to
  int64_t ffn_dim = 0;
  int64_t shared_ffn_dim = 0;  // of one that every token goes to; 0: none
  bool sigmoid = false;        // scores are sigmoids, not a softmax
  bool normalize = false;      // weights of a token add up to `scale`
  bool weighs_input = false;   // weights multiply the input of an expert, not its output
  bool has_bias = false;       // the router adds a bias to choose
  int64_t groups = 1;
  int64_t keep_groups = 1;  // of which experts may be chosen
  double scale = 1;
  // Layers with experts: every step-th, but not the first ones nor those of the list.
  int64_t first_layers = 0;
  int64_t step = 1;
  std::vector<int64_t> dense_layers = {};

  bool in_layer(int64_t layer) const;
  bool operator==(const Experts&) const = default;
};

// All sizes of a model, resolved: a preset or a config.json, plus the overrides of the config.
struct ModelSpec {
  std::string model = {};   // "gpt2", "llama", ...
  std::string flavor = {};  // for display: "124M", or "(changed from 124M)"
  int64_t vocab_size = 0;
  int64_t dim = 0;
  int64_t n_layers = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_dim = 0;
  int64_t max_seq_len = 0;
  double norm_eps = 1e-5;
  double dropout = 0;
  bool bias = true;
  bool tie_embeddings = true;
  bool qk_norm = false;       // of every query and key head
  bool qk_unit_norm = false;  // the same without weights, after rotary positions
  double rope_theta = 10000;
  bool rope_interleaved = false;  // pairs are neighbours, not halves of a head
  RopeScaling rope_scaling = {};
  LatentAttention latent = {};
  AttentionLayers attention_layers = {};
  Experts experts = {};
  // The tokens that begin and end a text, from a config.json; empty if unknown.
  std::vector<int64_t> bos_token_ids = {};
  std::vector<int64_t> eos_token_ids = {};
  bool operator==(const ModelSpec&) const = default;
};

enum class Init { Zeros, Ones, Normal };

// Rows [first, first + count) of a parameter under their Hugging Face name. A row has one index for
// all dims but the last; of a vector, a row is an element.
struct NamedRows {
  std::string name;
  int64_t first = 0;
  int64_t count = 0;
};

// A tensor that weight files contain but this model does not have: zeros in every file.
struct NamedZeros {
  std::string name;
  Shape shape;
};

// A parameter: its initial values and its names in weight files.
struct ParamInfo {
  std::string name;  // "layers.0.attention.wqkv.weight"
  Shape shape;
  std::vector<std::string> dims;  // what each dim means (graph/dims.h)
  Init init = Init::Normal;
  double std = 0.02;                      // of Init::Normal
  std::vector<NamedRows> slices;          // cover all rows in order; one entry if not fused
  std::vector<std::string> aliases = {};  // other names in a file, such as a tied head
  std::vector<NamedZeros> zeros = {};     // the biases of a model without biases
  std::string stacked = {};               // the name of all rows in files that do not divide them
  bool trained = true;                    // by gradients
};

// The elements of one of the rows that NamedRows counts.
int64_t row_elements(const ParamInfo& param);
// The shape of named rows in files.
Shape slice_shape(const ParamInfo& param, const NamedRows& rows);

enum class BuildMode {
  Train,   // outputs loss; dropout on
  Eval,    // outputs loss; dropout off
  Decode,  // outputs logits
};

struct BuildOptions {
  int64_t batch = 1;
  int64_t seq_len = 1;
  BuildMode mode = BuildMode::Train;
  bool documents = false;  // attention stays within documents
  // An input holds the position of each token in its document; always if there are documents.
  bool positions = false;
  // How often each key and value head is repeated, so that tensor parallelism can share them out.
  int64_t kv_repeats = 1;
  int64_t padding = 0;  // tokens at the end of a sequence that have no position of their own
  bool counts_lost_rows = false;  // of experts, whose rows are limited
  // The coefficients of the losses of routers while training, see the op router_loss.
  struct RouterLosses {
    double aux = 0, z = 0;
  } router_losses = {};
};

struct BuiltModel {
  Graph graph;
  std::vector<ParamInfo> params;  // in registration order
};

class HfReader;
class HfWriter;

struct ModelDef {
  std::string_view name;
  std::span<const ModelSpec> (*presets)() = nullptr;
  // Throws UserError for sizes that this model does not support; called by check_model.
  void (*check)(const ModelSpec&) = nullptr;
  BuiltModel (*build)(const ModelSpec&, const BuildOptions&) = nullptr;
  // From and to the fields of a Hugging Face config.json of this type.
  std::string_view hf_model_type;
  ModelSpec (*from_hf)(const HfReader&) = nullptr;
  void (*to_hf)(const ModelSpec&, HfWriter&) = nullptr;
  // Overriding dim scales ffn_dim in proportion, rounded up to a multiple of this.
  int64_t ffn_multiple = 1;
  // Config keys that this model uses but not every model does; setting another model's is an error.
  std::span<const std::string_view> own_keys = {};
  // Names in weight files may lack this prefix.
  std::string_view weight_prefix = "";
  // Tensors in weight files whose names end like this are not weights.
  std::span<const std::string_view> skipped_weights = {};
  // Layers in weight files that have a tensor of this name are not the model's.
  std::string_view skipped_layers = "";
  // A file of a larger model has this before the names of the weights; the rest is not the model's.
  std::string_view outer_prefix = "";
};

// Every model, in the order of the documentation.
std::span<const ModelDef* const> all_models();
// The model of that name, which validate() has checked.
const ModelDef& find_model(std::string_view name);

// Resolves preset and overrides of the config; `data_vocab` (0: unknown) replaces vocab_size = -1.
// Dependent sizes follow an overridden one: ffn_dim keeps its ratio to dim, and n_kv_heads stays
// equal to n_heads if it was. Throws UserError.
ModelSpec resolve_model(const ModelConfig& config, int64_t data_vocab);

// Throws UserError naming the key unless a model of these sizes can be built.
void check_model(const ModelSpec& spec);

// Checks the sizes of the model and the run (the sequence fits the table), then builds.
BuiltModel build_model(const ModelSpec& spec, const BuildOptions& options);

// Number of parameters, tied weights counted once.
int64_t num_params(std::span<const ParamInfo> params);

// The same without lookup tables: embeddings (unless tied to the head) and learned positions.
int64_t num_multiplied_params(const BuiltModel& model);

}  // namespace weft
