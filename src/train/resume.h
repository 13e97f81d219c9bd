// Continues a run from a checkpoint: finds it, compares what it was made with to this run, and
// loads this rank's elements. A damaged checkpoint is set aside and the one before it is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "compile/compile.h"
#include "config/config.h"
#include "train/session.h"
#include "train/training_state.h"

namespace weft {

// A checkpoint that has been opened: everything but its tensors is verified and read.
struct OpenCheckpoint {
  std::string path;
  Manifest manifest;
  TrainingState state;
  Config config;    // that it was made with
  ModelSpec model;  // that it holds
  std::string digest;
};
// Throws UserError(Integrity) if it is damaged, UserError(InputFile) if it is no checkpoint of a
// run.
OpenCheckpoint open_checkpoint(const std::string& path);
// Whether it holds the optimizer state; otherwise weights alone.
bool has_optimizer_state(const OpenCheckpoint& checkpoint);

// Loads weights and optimizer state into the session, verifying every block that is read.
void load_checkpoint(const OpenCheckpoint& checkpoint, Session& session);

// The keys that differ, as "training.steps = 200 (was 100)".
std::vector<std::string> changed_keys(const Config& before, const Config& now);

// Asks for the newest checkpoint of the run.
inline constexpr const char* kNewest = "newest";

class Resume {
 public:
  // Finds and opens the checkpoint that `which` asks for: empty, the newest of this run; otherwise
  // a step of this run, or the folder of a checkpoint or of another run. `tokenizer` is the
  // identity of that of the data. All ranks call it. Throws UserError for contradictions, before
  // anything is allocated.
  Resume(const Config& config, const std::string& which, ModelSpec model,
         const std::string& tokenizer, Communicator& comm);

  // False if this run has no checkpoint yet: it starts at step 0.
  bool found() const { return current_.has_value(); }
  const OpenCheckpoint& checkpoint() const { return *current_; }
  // Whether `which` asks for a checkpoint of this run's own.
  static bool asks_for_own(const Config& config, const std::string& which);

  // Loads the checkpoint. If that shows damage, continues with the one before it.
  void load(Session& session);

 private:
  void list(const std::string& which);
  // Opens the next candidate that is not damaged.
  void open_next();
  // Calls `work` on every rank. If a rank finds damage, sets the checkpoint aside and returns
  // false; if the user named that checkpoint, it is an error instead.
  bool try_on_all(const std::string& path, const std::function<void()>& work);
  void compare(const OpenCheckpoint& checkpoint) const;

  const Config& config_;
  ModelSpec model_;
  std::string tokenizer_;
  Communicator& comm_;
  std::vector<std::string> candidates_;  // newest first
  size_t next_ = 0;
  bool named_ = false;            // the user named one checkpoint
  std::vector<int64_t> damaged_;  // steps that were set aside
  std::optional<OpenCheckpoint> current_;
};

}  // namespace weft
