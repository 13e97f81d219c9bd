#include "train/run_folder.h"

#include <filesystem>

#include "base/disk.h"
#include "base/error.h"
#include "base/file.h"
#include "config/load.h"

namespace weft {

namespace fs = std::filesystem;

std::string output_path(const Config& config, const std::string& name) {
  return fs::path(config.job.dump_folder) / name;
}

std::string checkpoint_path(const Config& config) {
  return output_path(config, config.checkpoint.folder);
}

bool is_own(const Config& config, const std::string& path) {
  // The same folder has many names: links, "..", a slash at the end.
  const auto real = [](const fs::path& named) {
    std::error_code error;
    const fs::path found = fs::canonical(named, error);
    return error ? fs::absolute(named).lexically_normal() : found;
  };
  const fs::path checkpoints = real(checkpoint_path(config)), given = real(path);
  return given == real(config.job.dump_folder) || given == checkpoints ||
         given.parent_path() == checkpoints;
}

void check_unused(const Config& config) {
  const std::string& folder = config.job.dump_folder;
  std::string found;
  const std::vector<CommittedCheckpoint> saved =
      CheckpointFolder(checkpoint_path(config)).committed();
  std::error_code error;
  if (!saved.empty()) {
    found = saved.back().path;
  } else if (!config.metrics.file.empty() &&
             fs::file_size(output_path(config, config.metrics.file), error) > 0 && !error) {
    found = output_path(config, config.metrics.file);
  }
  if (found.empty()) return;
  throw UserError(ExitCode::CannotWrite,
                  cat(folder, ": holds the result of an earlier run (", found,
                      "); continue it with --resume, replace it with --overwrite, or set another "
                      "job.dump_folder"));
}

void check_newest(const Config& config, int64_t step) {
  const std::vector<CommittedCheckpoint> saved =
      CheckpointFolder(checkpoint_path(config)).committed();
  if (saved.empty() || saved.back().step <= step) return;
  throw UserError(ExitCode::CannotWrite,
                  cat("command line: --resume=", step, ": ", saved.back().path,
                      " is newer and would be replaced; add --overwrite to remove what comes after "
                      "step ",
                      step, ", or set another job.dump_folder and give --resume the folder"));
}

void remove_results(const Config& config, int64_t after) {
  const CheckpointFolder folder(checkpoint_path(config));
  for (const CommittedCheckpoint& saved : folder.committed()) {
    if (saved.step > after) folder.remove(saved.step);
  }
  if (after >= 0 || config.metrics.file.empty()) return;
  const fs::path metrics = output_path(config, config.metrics.file);
  std::error_code error;
  if (fs::is_regular_file(metrics, error)) fs::remove(metrics, error);
}

std::string checkpoints_in(const std::string& run) {
  Config config;
  const std::string saved = run + "/config.toml";
  try {
    if (path_exists(saved)) config.checkpoint.folder = load_config(saved, {}).checkpoint.folder;
  } catch (const UserError&) {
    // A file of something else; the usual folder is left to look into.
  }
  config.job.dump_folder = run;
  return checkpoint_path(config);
}

std::string resolve_weights(const std::string& path) {
  if (path_exists(path + "/config.json")) return path;
  for (const std::string& folder : {path, checkpoints_in(path)}) {
    const std::vector<CommittedCheckpoint> saved = CheckpointFolder(folder).committed();
    if (!saved.empty()) return saved.back().path;
  }
  return path;
}

}  // namespace weft
