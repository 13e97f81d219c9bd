// The checkpoints of a run: folders "step-N" under one folder. A checkpoint is written under
// another name and renamed once everything in it is on disk, its manifest last; so every "step-N"
// is complete. Only the holder of the run's lock changes the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace weft {

struct CommittedCheckpoint {
  int64_t step = 0;
  std::string path;
};

// Which checkpoints remain when a new one is committed.
struct KeepPolicy {
  int64_t latest = 0;  // the newest ones; 0: all
  int64_t every = 0;   // and those of every n-th step; 0: none
};

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // The path of the checkpoint of a step, once it is committed.
  std::string path_of(int64_t step) const;
  // The committed checkpoints, oldest first.
  std::vector<CommittedCheckpoint> committed() const;

  // The path of an unfinished checkpoint; `tag` differs between attempts.
  std::string partial_path(int64_t step, uint64_t tag) const;
  // Creates the folder if necessary, and the folder of the unfinished checkpoint.
  void begin(const std::string& partial) const;
  // Writes the manifest into the unfinished checkpoint, whose other files are on disk, and gives it
  // its final name. Returns its digest.
  std::string commit(const std::string& partial, const Manifest& manifest) const;

  // Renames a damaged checkpoint to "step-N.bad"; returns the new path.
  std::string set_aside(int64_t step) const;
  // Removes what killed runs left behind.
  void remove_partials() const;
  // Removes the committed checkpoints that the policy does not keep, and what is left of those that
  // could not be removed before; returns the steps of the former.
  std::vector<int64_t> prune(const KeepPolicy& keep) const;
  void remove(int64_t step) const;

 private:
  std::string path_;
};

// The manifest of a checkpoint, checked; nullopt if the folder has none.
std::optional<Manifest> read_manifest(const std::string& checkpoint);
// The digest of its manifest.
std::string checkpoint_digest(const std::string& checkpoint);

// Throws UserError(Integrity) if a listed file is missing or has another size, if the folder holds
// tensors that the manifest does not list, or if it is named after another step.
void check_files(const std::string& checkpoint, const Manifest& manifest);
// Compares every block of the files without tensors with the manifest, too; tensors are compared as
// they are read.
void verify_texts(const std::string& checkpoint, const Manifest& manifest);
// Compares every block of every file.
void verify_checkpoint(const std::string& checkpoint, const Manifest& manifest);

}  // namespace weft
