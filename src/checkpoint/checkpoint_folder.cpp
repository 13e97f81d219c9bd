#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>

#include "base/checksum.h"
#include "base/disk.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/verified_file.h"

namespace weft {

namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kPartial = ".partial-";

// The tag of a checkpoint that is being removed; no attempt to save has it.
constexpr uint64_t kLeaving = 0;

bool is_leaving(const std::string& name) {
  return name.starts_with(kStep) && name.ends_with(cat(kPartial, to_hex(kLeaving)));
}

// N of "step-N", as written.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::optional<int64_t> step = parse_int(name.substr(kStep.size()));
  if (!step || *step < 0 || cat(kStep, *step) != name) return std::nullopt;
  return step;
}

// Files of tensors, and their indexes.
bool holds_tensors(const std::string& name) {
  return name.find(".safetensors") != std::string::npos;
}

}  // namespace

std::vector<CommittedCheckpoint> CheckpointFolder::committed() const {
  std::vector<CommittedCheckpoint> found;
  for (const std::string& name : folder_names(path_)) {
    const std::optional<int64_t> step = step_of(name);
    if (!step || !path_exists(cat(path_, "/", name, "/", kManifestName))) continue;
    found.push_back({*step, path_ + "/" + name});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::string CheckpointFolder::path_of(int64_t step) const {
  return cat(path_, "/", kStep, step);
}

std::string CheckpointFolder::partial_path(int64_t step, uint64_t tag) const {
  return cat(path_of(step), kPartial, to_hex(tag));
}

void CheckpointFolder::begin(const std::string& partial) const {
  make_directories(path_);
  make_folder(partial);
}

std::string CheckpointFolder::commit(const std::string& partial, const Manifest& manifest) const {
  const std::string text = manifest_text(manifest);
  const PlannedFile file{std::string(kManifestName), static_cast<int64_t>(text.size())};
  BlockFile target = BlockFile::create(partial + "/" + file.name, file.bytes);
  target.write(0, std::as_bytes(std::span(text)));
  target.finish();
  sync_folder(partial);
  // Left by a save that failed only after its rename, and was never reported as committed.
  if (path_exists(path_of(manifest.step))) remove(manifest.step);
  rename_durably(partial, path_of(manifest.step));
  return manifest_digest(text);
}

std::string CheckpointFolder::set_aside(int64_t step) const {
  std::string target = path_of(step) + ".bad";
  for (int number = 2; path_exists(target); ++number) {
    target = cat(path_of(step), ".bad", number);
  }
  rename_durably(path_of(step), target);
  return target;
}

void CheckpointFolder::remove_partials() const {
  for (const std::string& name : folder_names(path_)) {
    if (name.starts_with(kStep) && name.find(kPartial) != std::string::npos) {
      remove_folder(path_ + "/" + name);
    }
  }
}

std::vector<int64_t> CheckpointFolder::prune(const KeepPolicy& keep) const {
  std::vector<int64_t> removed;
  if (keep.latest == 0) return removed;
  for (const std::string& name : folder_names(path_)) {
    if (is_leaving(name)) remove_folder(path_ + "/" + name);
  }
  const std::vector<CommittedCheckpoint> all = committed();
  for (size_t i = 0; i + static_cast<size_t>(keep.latest) < all.size(); ++i) {
    if (keep.every > 0 && all[i].step % keep.every == 0) continue;
    remove(all[i].step);
    removed.push_back(all[i].step);
  }
  return removed;
}

// Renamed first: a folder that is only half removed must not look committed.
void CheckpointFolder::remove(int64_t step) const {
  const std::string leaving = partial_path(step, kLeaving);
  if (path_exists(leaving)) remove_folder(leaving);  // of an earlier attempt
  rename_durably(path_of(step), leaving);
  remove_folder(leaving);
}

std::optional<Manifest> read_manifest(const std::string& checkpoint) {
  const std::string path = cat(checkpoint, "/", kManifestName);
  if (!path_exists(path)) return std::nullopt;
  return parse_manifest(read_text_file(path, kMaxManifestBytes), path);
}

std::string checkpoint_digest(const std::string& checkpoint) {
  const std::string path = cat(checkpoint, "/", kManifestName);
  const std::string text = read_text_file(path, kMaxManifestBytes);
  parse_manifest(text, path);
  return manifest_digest(text);
}

void check_files(const std::string& checkpoint, const Manifest& manifest) {
  // A renamed folder would count as another step of its run.
  const std::optional<int64_t> named =
      step_of(std::filesystem::path(checkpoint).filename().string());
  if (named && *named != manifest.step) {
    throw UserError(ExitCode::Integrity,
                    cat(checkpoint, "/", kManifestName, ": of step ", manifest.step, ", expected ",
                        *named, " as in the name of the folder; rename it"));
  }
  for (const ManifestFile& file : manifest.files) {
    VerifiedFile::open(checkpoint + "/" + file.name, &file);
  }
  for (const std::string& name : folder_names(checkpoint)) {
    if (!holds_tensors(name) || manifest.find(name) != nullptr) continue;
    throw UserError(ExitCode::Integrity,
                    cat(checkpoint, "/", name, ": the manifest does not list this file"));
  }
}

void verify_texts(const std::string& checkpoint, const Manifest& manifest) {
  check_files(checkpoint, manifest);
  for (const ManifestFile& file : manifest.files) {
    if (holds_tensors(file.name)) continue;
    VerifiedFile::open(checkpoint + "/" + file.name, &file).verify();
  }
}

void verify_checkpoint(const std::string& checkpoint, const Manifest& manifest) {
  check_files(checkpoint, manifest);
  for (const ManifestFile& file : manifest.files) {
    VerifiedFile::open(checkpoint + "/" + file.name, &file).verify();
  }
}

}  // namespace weft
