// What a run reports: one line per logged step on standard output (a live line on a terminal), and
// one JSON object per step in a file that can be read during the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/expert_load.h"
#include "train/saver.h"

namespace weft {

// The metrics of one optimizer step.
struct StepMetrics {
  int64_t step = 0;  // counts from 1
  int64_t steps = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double seconds = 0;              // of this step alone
  double tokens_per_second = 0;    // smoothed, like the values derived from it
  std::optional<double> mfu = {};  // unset if the device's peak is unknown
  int64_t memory_bytes = 0;        // in use, measured after the step
  double eta_seconds = 0;
  bool skipped = false;  // not finite: no update
  std::optional<double> loss_scale = {};
  std::optional<ExpertLoad> experts = {};
};

// "step 10/2000  loss 3.1416  grad norm 1.25  lr 0.001  41.2 k tok/s  mfu 31.0 %  mem 1.2 GiB ..."
std::string to_line(const StepMetrics& metrics);

// One JSON object; numbers that are not finite become null.
std::string to_json(const StepMetrics& metrics);

// The checkpoint that a run continues from.
struct ResumedFrom {
  int64_t step = 0;
  std::string checkpoint;
  std::string digest;
  double seconds = 0;  // that loading took
};

class MetricsLog {
 public:
  // Overwrites the file, but keeps the lines of the first `done` steps; an empty path writes none.
  // Throws UserError(CannotWrite).
  MetricsLog(const std::string& path, int64_t log_freq, int64_t done = 0);
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  ~MetricsLog();

  void step(const StepMetrics& metrics);
  void validation(int64_t step, double loss);
  // How a save ended. After a failure training continues, unless the run gives up.
  void checkpoint(const SaveOutcome& save, bool gives_up);
  void resumed(const ResumedFrom& from);
  // Forces the file to disk, so that a checkpoint never has steps whose metrics are lost.
  void sync();
  // What the file lacks, as a sentence; empty when it is complete or not requested.
  std::string missing() const;
  // Prints a separate line between the steps.
  void note(const std::string& text);

 private:
  void write(int64_t step, const std::string& line);

  std::string path_;
  int file_ = -1;
  int64_t size_ = 0;  // of the complete lines in the file
  int64_t log_freq_;
  int64_t first_step_;  // that this run does
  bool live_;
  bool line_open_ = false;
  int64_t failed_at_ = 0;  // the first step that could not be written; 0: none
};

}  // namespace weft
