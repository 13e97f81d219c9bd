// Saves checkpoints of a run, all ranks together: every rank writes its own byte ranges of the
// files at their final places, then rank 0 writes the manifest and commits. A save can run in the
// background: the rank's shard is copied to host memory, and the ranks find out in the exchange
// that they make after every step anyway how far the others are.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "train/checkpoint_files.h"
#include "train/run_folder.h"
#include "train/session.h"
#include "train/training_state.h"

namespace weft {

// How a save ended.
struct SaveOutcome {
  int64_t step = 0;
  std::string path;    // of the checkpoint; empty: it failed
  std::string digest;  // of its manifest; rank 0 only
  std::string error;   // why it failed
  ExitCode code = ExitCode::Done;
  int64_t bytes = 0;
  double seconds = 0;            // from its start to its commit; rank 0 only
  double blocked_seconds = 0;    // of these, training was stopped
  std::vector<int64_t> removed;  // older checkpoints that were removed; rank 0 only
  std::string kept = {};         // why older ones could not be removed; rank 0 only
};

// How far this rank is with a save, as the others see it.
enum class SavePhase : char { Idle, Writing, Written, Failed, Waiting, Committed };

class Saver {
 public:
  // `texts` are the files that every checkpoint holds besides its tensors; rank 0 writes them. The
  // session and the communicator outlive the saver.
  Saver(const Config& config, Session& session, std::vector<TextFile> texts, Communicator& comm);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Throws UserError(CannotWrite) unless the disk has room for a checkpoint. The folder of the
  // checkpoints exists.
  void check_space() const;

  // The following four are called by all ranks at the same points of the run.

  // Saves the state after a step and waits until it is committed or has failed.
  void save(const TrainingState& state);
  // Copies the state and writes it in the background. While an earlier save is running, waits for
  // that one or skips this one, as the config says; returns whether it was started.
  bool start(const TrainingState& state);
  // Lets a save in the background proceed, given the phases of all ranks.
  void advance(std::span<const SavePhase> phases);
  // Waits for the save in the background.
  void finish();

  SavePhase phase() const { return phase_; }
  // How the saves ended since the last call.
  std::vector<SaveOutcome> take_outcomes() { return std::exchange(outcomes_, {}); }
  // The step of the newest checkpoint of this run; -1: none.
  int64_t committed_step() const { return committed_step_; }
  // The run continues from that checkpoint in its own folder.
  void set_committed(int64_t step) { committed_step_ = step; }
  // Saves that failed since one was committed.
  int64_t failures_in_a_row() const { return failures_; }

 private:
  // Where a range lies in the copy of this rank's shard.
  struct Copied {
    int64_t at = 0;
    bool is_first = false;  // others refer to the same elements
  };

  void begin(const TrainingState& state);
  void write_own(bool from_copy);
  void copy_shard();
  void fill(const SavedRange& range, std::span<const std::byte> copy, int64_t first,
            std::span<std::byte> bytes);
  void collect();
  void commit();
  void conclude();
  void fail(const std::string& outcome);
  void in_background(void (Saver::*work)());
  void write_copied() { write_own(true); }
  std::vector<SavePhase> exchange_phases();

  const Config& config_;
  Session& session_;
  Communicator& comm_;
  std::vector<TextFile> texts_;
  CheckpointFolder folder_;
  CheckpointFiles files_;
  HostMemory copy_;             // of this rank's shard, for saves in the background
  std::vector<Copied> copies_;  // by range

  // Of the current save.
  SaveOutcome current_;
  std::string partial_;
  std::vector<PlannedFile> planned_;  // files of tensors, then texts
  std::vector<TextFile> current_texts_;
  std::vector<WrittenBlock> blocks_;  // of this rank, then of all ranks
  std::string error_;
  double started_ = 0;

  std::atomic<SavePhase> phase_{SavePhase::Idle};
  std::thread thread_;
  std::vector<SaveOutcome> outcomes_;
  int64_t committed_step_ = -1;
  int64_t failures_ = 0;
};

}  // namespace weft
