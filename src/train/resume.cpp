#include "train/resume.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/verified_file.h"
#include "config/derived.h"
#include "config/load.h"
#include "config/schema.h"
#include "model/hf_config.h"
#include "train/checkpoint_files.h"
#include "train/exchange_text.h"
#include "train/run_folder.h"
#include "train/weights.h"

namespace weft {

namespace {

// The verified text of a small file of the checkpoint.
std::string read_listed(const std::string& folder, const Manifest& manifest,
                        std::string_view name) {
  const std::string path = cat(folder, "/", name);
  const ManifestFile* listed = manifest.find(name);
  INPUT_CHECK(listed != nullptr, path, ": missing; this checkpoint was not made by a run");
  const VerifiedFile file = VerifiedFile::open(path, listed);
  std::string text(static_cast<size_t>(file.size()), ' ');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string shown(const ConfigValue& value) {
  return std::holds_alternative<std::monostate>(value) ? "unset" : value_to_toml(value);
}

// A size of the model that two runs must share.
struct ModelSize {
  const char* key;
  double saved;
  double now;
};

std::vector<ModelSize> model_sizes(const ModelSpec& a, const ModelSpec& b) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  return {{"model.vocab_size", number(a.vocab_size), number(b.vocab_size)},
          {"model.dim", number(a.dim), number(b.dim)},
          {"model.n_layers", number(a.n_layers), number(b.n_layers)},
          {"model.n_heads", number(a.n_heads), number(b.n_heads)},
          {"model.n_kv_heads", number(a.n_kv_heads), number(b.n_kv_heads)},
          {"model.ffn_dim", number(a.ffn_dim), number(b.ffn_dim)},
          {"model.norm_eps", a.norm_eps, b.norm_eps},
          {"model.rope_theta", a.rope_theta, b.rope_theta},
          {"the factor of model.rope_scaling", a.rope_scaling.factor, b.rope_scaling.factor},
          {"model.tie_embeddings", number(a.tie_embeddings), number(b.tie_embeddings)}};
}

// Reads a state of the entire step, if the plan has it. A run that did not scale its loss has saved
// no scale: then this one starts with its own.
void load_step_state(const SafetensorsModel& files, StateRole role, bool saved, Session& session) {
  const Binding* binding = find_state(session.compiled().plan, {role});
  if (binding == nullptr || !saved) return;
  std::vector<std::byte> bytes(static_cast<size_t>(tensor_bytes(binding->tensor)));
  const TensorEntry* entry = files.find(binding->name);
  INPUT_CHECK(entry != nullptr, files.path(), ": tensor ", in_quotes(binding->name), " is missing");
  INPUT_CHECK(entry->end - entry->begin == std::ssize(bytes), files.path(), ": tensor ",
              in_quotes(binding->name), " has ", entry->end - entry->begin, " bytes, expected ",
              bytes.size());
  files.read(binding->name, 0, bytes);
  session.executor().write(binding->name, bytes.data(), std::ssize(bytes));
}

}  // namespace

OpenCheckpoint open_checkpoint(const std::string& path) {
  std::optional<Manifest> manifest = read_manifest(path);
  INPUT_CHECK(manifest, path, ": no ", kManifestName,
              ", so this is no checkpoint; give the folder of a checkpoint or of a run, or set "
              "checkpoint.initial_load_path to start from weights");
  verify_texts(path, *manifest);
  const auto text = [&](std::string_view name) { return read_listed(path, *manifest, name); };
  const auto where = [&](std::string_view name) { return cat(path, "/", name); };
  OpenCheckpoint open{
      .path = path,
      .manifest = {},
      .state = parse_training_state(text(kTrainingStateName), where(kTrainingStateName)),
      .config = parse_config(text(kConfigName), where(kConfigName), {}),
      .model = parse_hf_config(text("config.json"), where("config.json")),
      .digest = checkpoint_digest(path)};
  if (open.state.step != manifest->step) {
    throw UserError(ExitCode::Integrity,
                    cat(where(kTrainingStateName), ": of step ", open.state.step, ", expected ",
                        manifest->step, " as in ", kManifestName));
  }
  open.manifest = std::move(*manifest);
  return open;
}

bool has_optimizer_state(const OpenCheckpoint& checkpoint) {
  return !checkpoint.config.checkpoint.weights_only;
}

void load_checkpoint(const OpenCheckpoint& checkpoint, Session& session) {
  const Compiled& compiled = session.compiled();
  const std::vector<ParamInfo>& params = compiled.params;
  const WeightFiles weights(checkpoint.path, find_model(compiled.spec.model), params,
                            &checkpoint.manifest);
  const SafetensorsModel states =
      SafetensorsModel::open(checkpoint.path, kOptimizerStem, &checkpoint.manifest);
  const bool has_masters = checkpoint.config.checkpoint.export_dtype != Precision::Float32;
  const auto of = [&](std::string_view prefix) {
    return [&, prefix = std::string(prefix)](size_t param, int64_t first, std::span<float> values) {
      read_elements(states, params[param], prefix, first, values);
    };
  };
  if (has_masters) {
    session.set_params(of(kMasterPrefix));
  } else {
    session.set_params([&](size_t param, int64_t first, std::span<float> values) {
      weights.read(param, first, values);
    });
  }
  for (const StateRole role : {StateRole::FirstMoment, StateRole::SecondMoment}) {
    session.params().set_states(role, of(owner_prefix(role)));
  }
  const bool scaled = scales_loss(checkpoint.config);
  for (const StateRole role : kStepStates) {
    load_step_state(states, role, role == StateRole::UpdateCount || scaled, session);
  }
}

std::vector<std::string> changed_keys(const Config& before, const Config& now) {
  std::vector<std::string> changes;
  for (const Key<Config>& key : config_keys()) {
    const ConfigValue old = key.get(before), current = key.get(now);
    if (old == current) continue;
    changes.push_back(cat(key.name, " = ", shown(current), " (was ", shown(old), ")"));
  }
  return changes;
}

Resume::Resume(const Config& config, const std::string& which, ModelSpec model,
               const std::string& tokenizer, Communicator& comm)
    : config_(config), model_(std::move(model)), tokenizer_(tokenizer), comm_(comm) {
  list(which);
  open_next();
}

// Rank 0 looks, so that all ranks see the same list.
void Resume::list(const std::string& which) {
  std::string paths;
  const CheckpointFolder folder(checkpoint_path(config_));
  const std::optional<int64_t> step = parse_int(which);
  named_ = which != kNewest;
  if (comm_.rank() == 0) {
    const std::vector<CommittedCheckpoint> saved = folder.committed();
    if (step) {
      USER_CHECK(path_exists(folder.path_of(*step)), "command line: --resume=", *step, ": ",
                 folder.path(), " has no checkpoint of that step",
                 saved.empty() ? "" : cat("; the newest is step ", saved.back().step));
      paths = folder.path_of(*step);
    } else if (named_) {
      USER_CHECK(path_exists(which), "command line: --resume=", which,
                 ": no such folder; give a step, or the folder of a checkpoint or of a run");
      // The run may have its checkpoints in another folder than usual.
      const bool own = is_own(config_, which) && !path_exists(which + "/config.json");
      paths = own && !saved.empty() ? saved.back().path : resolve_weights(which);
    } else {
      for (auto at = saved.rbegin(); at != saved.rend(); ++at) {
        paths += cat(paths.empty() ? "" : "\n", at->path);
      }
    }
  }
  paths = exchange_texts(comm_, paths).front();
  if (!paths.empty()) candidates_ = split(paths, '\n');
}

void Resume::open_next() {
  current_.reset();
  while (next_ < candidates_.size() && !current_) {
    const std::string& path = candidates_[next_++];
    std::optional<OpenCheckpoint> opened;
    if (try_on_all(path, [&] { opened = open_checkpoint(path); })) current_ = std::move(opened);
  }
  if (current_) {
    compare(*current_);
    return;
  }
  if (damaged_.empty()) return;
  throw UserError(ExitCode::Integrity, cat(checkpoint_path(config_),
                                           ": every checkpoint is damaged; they were set aside "
                                           "as step-N.bad, start again with --overwrite"));
}

bool Resume::try_on_all(const std::string& path, const std::function<void()>& work) {
  std::string damage;
  try {
    work();
  } catch (const UserError& error) {
    if (error.code() != ExitCode::Integrity) throw;
    damage = error.what();
  }
  for (const std::string& found : exchange_texts(comm_, damage)) {
    if (found.empty()) continue;
    if (named_) throw UserError(ExitCode::Integrity, found);
    const std::string name = std::filesystem::path(path).filename().string();
    damaged_.push_back(parse_int(name.substr(name.find('-') + 1)).value_or(-1));
    if (comm_.rank() == 0) {
      const std::string aside =
          CheckpointFolder(checkpoint_path(config_)).set_aside(damaged_.back());
      log_line(cat("DAMAGED  ", found, "; set aside as ", aside));
    }
    return false;
  }
  return true;
}

bool Resume::asks_for_own(const Config& config, const std::string& which) {
  return which == kNewest || parse_int(which).has_value() || is_own(config, which);
}

void Resume::compare(const OpenCheckpoint& checkpoint) const {
  const std::string& path = checkpoint.path;
  INPUT_CHECK(has_optimizer_state(checkpoint), path,
              ": holds weights only (checkpoint.weights_only = true); to start from them, set "
              "checkpoint.initial_load_path");
  USER_CHECK(checkpoint.model.model == model_.model, path, ": holds a ", checkpoint.model.model,
             " model, the config says model.name = \"", model_.model,
             "\"; resume with the config it was made with");
  for (const ModelSize& size : model_sizes(checkpoint.model, model_)) {
    USER_CHECK(size.saved == size.now, path, ": made with ", size.key, " = ",
               format_double(size.saved), ", now ", format_double(size.now),
               "; resume with the same model");
  }
  USER_CHECK(checkpoint.state.seed == config_.debug.seed, path,
             ": made with debug.seed = ", checkpoint.state.seed, ", now ", config_.debug.seed,
             "; resume with the same seed, which orders the data");
  const std::string& tokenizer = checkpoint.state.tokenizer;
  USER_CHECK(tokenizer.empty() || tokenizer_.empty() || tokenizer == tokenizer_, path,
             ": made with the tokenizer ", tokenizer, ", the data with ", tokenizer_,
             "; resume with data of the same tokenizer");
}

void Resume::load(Session& session) {
  while (current_ && !try_on_all(current_->path, [&] { load_checkpoint(*current_, session); })) {
    open_next();
  }
  if (damaged_.empty() || !current_ || comm_.rank() != 0) return;
  log_line(cat("RESUMED  from step ", current_->state.step, ": ",
               damaged_.front() - current_->state.step, " steps since then are lost"));
}

}  // namespace weft
