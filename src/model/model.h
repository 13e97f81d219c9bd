// Models as graphs for one device. A model file gives presets, the forward, and the Hugging Face
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

// Llama-3.1 frequency scaling; factor 0 means none.
struct RopeScaling {
  double factor = 0;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position = 8192;
  bool operator==(const RopeScaling&) const = default;
};

// All sizes of a model, resolved: a preset or a config.json, plus the overrides of the config.
struct ModelSpec {
  std::string model = {};   // "gpt2", "llama"
  std::string flavor = {};  // for people: "124M", or "(changed from 124M)"
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
  double rope_theta = 10000;
  RopeScaling rope_scaling = {};
  // What begins and ends a text, as a config.json says; empty where that is not known.
  std::vector<int64_t> bos_token_ids = {};
  std::vector<int64_t> eos_token_ids = {};
  bool operator==(const ModelSpec&) const = default;
};

enum class Init { Zeros, Ones, Normal };

// Rows [first, first + count) of a parameter under their Hugging Face name.
struct NamedRows {
  std::string name;
  int64_t first = 0;
  int64_t count = 0;
};

// A tensor that files hold beside a parameter although this model has none: zero in every file.
struct NamedZeros {
  std::string name;
  Shape shape;
};

// A parameter: where its initial values come from and what others call it.
struct ParamInfo {
  std::string name;  // "layers.0.attention.wqkv.weight"
  Shape shape;
  Init init = Init::Normal;
  double std = 0.02;              // of Init::Normal
  std::vector<NamedRows> slices;  // cover all rows in order; one entry when nothing is fused
  std::vector<std::string> aliases = {};  // names under which a file may repeat it: a tied head
  std::vector<NamedZeros> zeros = {};     // the biases of a model without biases
};

enum class BuildMode {
  Train,   // outputs loss; dropout on
  Eval,    // outputs loss; dropout off
  Decode,  // outputs logits
};

struct BuildOptions {
  int64_t batch = 1;
  int64_t seq_len = 1;
  BuildMode mode = BuildMode::Train;
  bool documents = false;  // an input says where tokens stand in their documents
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
  // Throws UserError for sizes that this model cannot be built with; check_model calls it.
  void (*check)(const ModelSpec&) = nullptr;
  BuiltModel (*build)(const ModelSpec&, const BuildOptions&) = nullptr;
  // From and to the fields of a Hugging Face config.json of this type.
  std::string_view hf_model_type;
  ModelSpec (*from_hf)(const HfReader&) = nullptr;
  void (*to_hf)(const ModelSpec&, HfWriter&) = nullptr;
  // A dim that is overridden takes ffn_dim along in proportion, rounded up to a multiple of this.
  int64_t ffn_multiple = 1;
  // Config keys that not every model uses and this one does; setting another's is an error.
  std::span<const std::string_view> own_keys = {};
  // Names in weight files may lack this prefix.
  std::string_view weight_prefix = "";
  // Tensors in weight files whose name ends so hold no weights.
  std::span<const std::string_view> skipped_weights = {};
};

// Every model, in the order of the documentation.
std::span<const ModelDef* const> all_models();
// The model of that name, which validate() has found to be one.
const ModelDef& find_model(std::string_view name);

// Preset and overrides of the config; `data_vocab` (0: unknown) answers vocab_size = -1. What
// follows from an overridden size follows it: ffn_dim keeps its ratio to dim, kv heads stay all
// heads where they were. Throws UserError.
ModelSpec resolve_model(const ModelConfig& config, int64_t data_vocab);

// Throws UserError naming the key unless a model of these sizes can be built.
void check_model(const ModelSpec& spec);

// Checks sizes against the model and the run (sequence within the table), then builds.
BuiltModel build_model(const ModelSpec& spec, const BuildOptions& options);

// Number of parameters, tied weights counted once.
int64_t num_params(std::span<const ParamInfo> params);

// The same without tables of which rows are only looked up: embeddings, unless they are the head
// too, and learned positions.
int64_t num_multiplied_params(const BuiltModel& model);

}  // namespace weft
