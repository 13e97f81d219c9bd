// The training loop: data -> steps -> metrics -> validation -> checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/stop.h"
#include "config/config.h"
#include "runtime/comm/single_rank.h"

namespace weft {

struct TrainResult {
  int64_t steps = 0;    // optimizer steps done
  int64_t skipped = 0;  // of these: without an update, because they were not finite
  double loss = 0;      // of the last step
  std::optional<double> validation_loss;
  int signal = 0;                    // that ended the run early; 0: none
  std::string checkpoint;            // the newest one; empty when nothing was saved
  std::vector<std::string> written;  // files of the run that exist, on rank 0
  std::string missing;               // what the metrics lack, as a sentence
};

// How a run relates to earlier ones in its folder.
struct TrainOptions {
  // Continue from a checkpoint: kNewest, the newest of this run, or from step 0 if it has none yet;
  // otherwise a step of this run, or the folder of a checkpoint or of another run.
  std::optional<std::string> resume = {};
  bool overwrite = false;  // replace what the folder holds
};

// Trains as the config says. `stop` is checked after every step and between validation batches;
// when set, the run ends cleanly and saves a checkpoint. Throws UserError for whatever the user can
// fix, before anything is allocated if possible. With several ranks, each calls it with its own
// `comm`, made for the mesh of mesh_of; rank 0 prints and writes for all.
TrainResult train(const Config& config, const StopRequest& stop, Communicator& comm = single_rank(),
                  const TrainOptions& options = {});

}  // namespace weft
