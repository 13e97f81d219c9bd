#include "train/load_weights.h"

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "train/run_folder.h"

namespace weft {

std::string find_weights(const std::string& path) {
  std::string found = resolve_weights(path);
  if (path_exists(found + "/config.json")) {
    check_texts(found);
    return found;
  }
  INPUT_CHECK(path_exists(path), path,
              ": no such folder; give the folder of a run, of a checkpoint or of a model");
  throw UserError(
      ExitCode::InputFile,
      cat(path, ": neither a config.json nor a checkpoint here or in ", checkpoints_in(path),
          "; give the folder of a run, of a checkpoint or of a model"));
}

void check_texts(const std::string& folder) {
  const std::optional<Manifest> manifest = read_manifest(folder);
  if (manifest) verify_texts(folder, *manifest);
}

WeightFiles open_weights(const std::string& folder, const Compiled& compiled) {
  const std::optional<Manifest> manifest = read_manifest(folder);
  if (manifest) check_files(folder, *manifest);
  return {folder, find_model(compiled.spec.model), compiled.params,
          manifest ? &*manifest : nullptr};
}

void load_weights(const WeightFiles& weights, Session& session) {
  session.set_params([&](size_t param, int64_t first, std::span<float> values) {
    weights.read(param, first, values);
  });
}

}  // namespace weft
