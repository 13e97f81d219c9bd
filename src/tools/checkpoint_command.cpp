// weft checkpoint ls | verify | show | diff | prune: looks after the checkpoints of a run.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/disk.h"
#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/safetensors_model.h"
#include "tools/commands.h"
#include "train/checkpoint_files.h"
#include "train/resume.h"
#include "train/run_folder.h"

namespace weft {

namespace {

struct CheckpointArguments {
  std::string folder;
  std::string other;
  int64_t keep_latest = 0;
  int64_t keep_every = 0;
};

constexpr const char* kNone =
    ": holds no checkpoint; give the folder of a run or of its checkpoints";

// The folder of checkpoints: the given one, or that of a run.
CheckpointFolder find_folder(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  INPUT_CHECK(path_exists(path), path,
              ": no such folder; give the folder of a run or of its checkpoints");
  INPUT_CHECK(!path_exists(cat(path, "/", kManifestName)), path,
              ": a checkpoint, expected the folder of a run or of its checkpoints");
  const std::string inside = checkpoints_in(path);
  return CheckpointFolder(path_exists(inside) ? inside : path);
}

// The checkpoints that a path refers to: itself, or all of a run.
std::vector<std::string> find_checkpoints(const std::string& path) {
  if (path_exists(cat(path, "/", kManifestName))) return {path};
  const CheckpointFolder folder = find_folder(path);
  std::vector<std::string> paths;
  for (const CommittedCheckpoint& saved : folder.committed()) paths.push_back(saved.path);
  INPUT_CHECK(!paths.empty(), folder.path(), kNone);
  return paths;
}

// One checkpoint: itself, or the newest of a run.
std::string find_one(const std::string& path) {
  return find_checkpoints(path).back();
}

ExitCode run_ls(const CheckpointArguments& arguments) {
  const CheckpointFolder folder = find_folder(arguments.folder);
  const std::vector<std::string> names = folder_names(folder.path());
  const bool any = std::any_of(names.begin(), names.end(),
                               [](const std::string& name) { return name.starts_with("step-"); });
  INPUT_CHECK(any, folder.path(), kNone);
  for (const CommittedCheckpoint& saved : folder.committed()) {
    std::string described;
    try {
      const OpenCheckpoint open = open_checkpoint(saved.path);
      described = cat(human_bytes(static_cast<double>(open.manifest.bytes())), "  ",
                      open.state.ranks, open.state.ranks == 1 ? " rank  " : " ranks  ", open.digest,
                      has_optimizer_state(open) ? "" : "  weights only");
    } catch (const UserError& error) {
      described = error.what();
    }
    log_line(cat("step ", saved.step, "  ", saved.path, "  ", described));
  }
  for (const std::string& name : names) {
    if (name.find(".bad") != std::string::npos) {
      log_line(cat("damaged  ", folder.path(), "/", name));
    } else if (name.find(".partial-") != std::string::npos) {
      log_line(cat("unfinished  ", folder.path(), "/", name));
    }
  }
  return ExitCode::Done;
}

ExitCode run_verify_checkpoints(const CheckpointArguments& arguments) {
  ExitCode code = ExitCode::Done;
  for (const std::string& path : find_checkpoints(arguments.folder)) {
    try {
      const std::optional<Manifest> manifest = read_manifest(path);
      CHECK(manifest, path, " has no manifest");
      verify_checkpoint(path, *manifest);
      log_line(cat("ok       ", path, "  ", human_bytes(static_cast<double>(manifest->bytes())),
                   "  ", checkpoint_digest(path)));
    } catch (const UserError& error) {
      log_line(cat("DAMAGED  ", error.what()));
      code = ExitCode::Integrity;
    }
  }
  return code;
}

SafetensorsModel open_tensors(const std::string& path, const Manifest& manifest, const char* stem) {
  return SafetensorsModel::open(path, stem, &manifest);
}

ExitCode run_show(const CheckpointArguments& arguments) {
  const std::string path = find_one(arguments.folder);
  const OpenCheckpoint open = open_checkpoint(path);
  log_line(cat("checkpoint  ", path, "  ", open.digest));
  log_line(cat("step        ", open.state.step, "  samples ", open.state.samples, "  seed ",
               open.state.seed, "  skipped ", open.state.skipped));
  log_line(cat("made on     ", open.state.ranks, open.state.ranks == 1 ? " rank" : " ranks",
               open.state.mesh.empty() ? "" : " (" + open.state.mesh + ")", "  ",
               open.state.backend,
               open.state.tokenizer.empty() ? "" : "  tokenizer " + open.state.tokenizer));
  for (const ManifestFile& file : open.manifest.files) {
    log_line(cat("file        ", file.name, "  ", file.bytes(), " bytes in ", file.blocks.size(),
                 file.blocks.size() == 1 ? " block" : " blocks"));
  }
  for (const char* stem : {kModelStem, kOptimizerStem}) {
    if (stem == kOptimizerStem && !has_optimizer_state(open)) continue;
    const SafetensorsModel tensors = open_tensors(path, open.manifest, stem);
    for (const std::string& name : tensors.names()) {
      const TensorEntry* entry = tensors.find(name);
      log_line(cat("tensor      ", name, "  ", entry->dtype, shape_text(entry->shape)));
    }
  }
  return ExitCode::Done;
}

// How two tensors of the same type and shape differ; empty: not at all.
std::string difference(const SafetensorsModel& a, const SafetensorsModel& b,
                       const std::string& name) {
  constexpr int64_t kBytesAtOnce = 1 << 20;
  const TensorEntry& entry = *a.find(name);
  const int64_t bytes = entry.end - entry.begin;
  int64_t differing = 0;
  double worst = 0;
  std::vector<std::byte> left, right;
  for (int64_t at = 0; at < bytes; at += kBytesAtOnce) {
    left.resize(static_cast<size_t>(std::min(kBytesAtOnce, bytes - at)));
    right.resize(left.size());
    a.read(name, at, left);
    b.read(name, at, right);
    if (left == right) continue;
    if (entry.dtype != "F32") return "differs";
    for (size_t i = 0; i < left.size(); i += sizeof(float)) {
      float x = 0, y = 0;
      std::memcpy(&x, left.data() + i, sizeof x);
      std::memcpy(&y, right.data() + i, sizeof y);
      if (bits_from_f32(x) == bits_from_f32(y)) continue;
      ++differing;
      worst = std::max(worst, std::abs(static_cast<double>(x) - static_cast<double>(y)));
    }
  }
  if (differing == 0) return "";
  return cat(differing, " of ", bytes / 4, " elements differ, by at most ", format_double(worst));
}

int64_t diff_tensors(const OpenCheckpoint& a, const OpenCheckpoint& b, const char* stem) {
  const SafetensorsModel left = open_tensors(a.path, a.manifest, stem);
  const SafetensorsModel right = open_tensors(b.path, b.manifest, stem);
  int64_t differences = 0;
  const auto report = [&](const std::string& name, const std::string& text) {
    log_line(cat("tensor  ", name, "  ", text));
    ++differences;
  };
  for (const std::string& name : left.names()) {
    const TensorEntry *x = left.find(name), *y = right.find(name);
    if (y == nullptr) {
      report(name, "only in " + a.path);
    } else if (x->dtype != y->dtype || x->shape != y->shape) {
      report(name, cat(x->dtype, shape_text(x->shape), " and ", y->dtype, shape_text(y->shape)));
    } else if (const std::string text = difference(left, right, name); !text.empty()) {
      report(name, text);
    }
  }
  for (const std::string& name : right.names()) {
    if (left.find(name) == nullptr) report(name, "only in " + b.path);
  }
  return differences;
}

ExitCode run_diff(const CheckpointArguments& arguments) {
  const OpenCheckpoint a = open_checkpoint(find_one(arguments.folder));
  const OpenCheckpoint b = open_checkpoint(find_one(arguments.other));
  if (a.state.step != b.state.step) {
    log_line(cat("step    ", a.state.step, " and ", b.state.step));
  }
  for (const std::string& change : changed_keys(a.config, b.config)) log_line("config  " + change);
  int64_t differences = diff_tensors(a, b, kModelStem);
  if (has_optimizer_state(a) && has_optimizer_state(b)) {
    differences += diff_tensors(a, b, kOptimizerStem);
  } else {
    log_line("optimizer states are not compared: a checkpoint holds weights only");
  }
  log_line(differences == 0 ? "all tensors are identical" : cat(differences, " tensors differ"));
  return differences == 0 ? ExitCode::Done : ExitCode::CheckFailed;
}

// The run must not be saving meanwhile.
ExitCode run_prune(const CheckpointArguments& arguments) {
  USER_CHECK(arguments.keep_latest > 0, "command line: --keep-latest is required");
  const CheckpointFolder folder = find_folder(arguments.folder);
  INPUT_CHECK(!folder_names(folder.path()).empty(), folder.path(), kNone);
  const FolderLock lock(folder.path());
  INPUT_CHECK(!folder.committed().empty(), folder.path(), kNone);
  for (const int64_t step :
       folder.prune({.latest = arguments.keep_latest, .every = arguments.keep_every})) {
    log_line(cat("removed ", folder.path_of(step)));
  }
  return ExitCode::Done;
}

}  // namespace

void add_checkpoint_command(Command app, const Finish& finish) {
  Command group = app.add_command("checkpoint", "list, verify, compare or remove checkpoints");
  group.require_commands(1, 1);
  const auto add = [&](const char* name, const char* doc, const char* what,
                       ExitCode (*run)(const CheckpointArguments&)) {
    auto arguments = std::make_shared<CheckpointArguments>();
    Command command = group.add_command(name, doc);
    command.add_option("DIR", arguments->folder, what).required();
    if (run == run_diff) command.add_option("OTHER", arguments->other, what).required();
    if (run == run_prune) {
      command.add_option("--keep-latest", arguments->keep_latest, "how many of the newest to keep")
          .range(1, 1 << 30);
      command
          .add_option("--keep-every", arguments->keep_every,
                      "also keep those whose step is a multiple of this")
          .range(1, 1 << 30);
    }
    command.on_run([=] { finish(run(*arguments)); });
  };
  constexpr const char* kRun = "folder of a run or of its checkpoints";
  constexpr const char* kOne = "folder of a checkpoint, or of a run: its newest checkpoint";
  add("ls", "list the checkpoints of a run", kRun, run_ls);
  add("verify", "compare every block of every file with its checksum",
      "folder of a checkpoint, or of a run: all its checkpoints", run_verify_checkpoints);
  add("show", "show what a checkpoint holds", kOne, run_show);
  add("diff", "compare the configs and tensors of two checkpoints", kOne, run_diff);
  add("prune", "remove old checkpoints", kRun, run_prune);
}

}  // namespace weft
