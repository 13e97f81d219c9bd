// Counts updates that were skipped because a step was not finite, and decides when the run must
// end.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "base/loss_scale.h"
#include "base/text.h"
#include "config/config.h"
#include "train/session.h"
#include "train/training_state.h"

namespace weft {

class NonFiniteGuard {
 public:
  // Continues the counts of `state`.
  NonFiniteGuard(const TrainingConfig& config, const TrainingState& state)
      : limit_(config.nonfinite == NonFinitePolicy::Stop ? 0 : config.nonfinite_limit),
        in_a_row_(state.nonfinite_in_a_row),
        total_(state.skipped) {}

  void count(const StepResult& result) {
    const bool finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
    // A smaller loss scale may fix the gradient, but never the loss.
    const bool shrinks = std::isfinite(result.loss) && result.loss_scale > kMinLossScale;
    skipping_ = !finite;
    total_ += finite ? 0 : 1;
    if (finite) in_a_row_ = 0;
    if (!finite && !shrinks) ++in_a_row_;
  }

  bool skipping() const { return skipping_; }
  bool tripped() const { return in_a_row_ > limit_; }
  int64_t total() const { return total_; }
  int64_t in_a_row() const { return in_a_row_; }

  // What happened, after it has tripped.
  std::string message(int64_t step, const StepResult& result) const {
    return cat("step ", step, ": loss ", shown(result.loss), " and gradient norm ",
               shown(result.grad_norm), " are not both finite",
               limit_ > 0 ? cat(", ", in_a_row_, " steps in a row without an update") : "");
  }

 private:
  static std::string shown(double value) {
    return std::isnan(value) ? "nan" : format_double(value);  // the sign of a NaN is meaningless
  }

  int64_t limit_;
  int64_t in_a_row_;  // those that no smaller loss scale can fix
  int64_t total_;
  bool skipping_ = false;
};

}  // namespace weft
