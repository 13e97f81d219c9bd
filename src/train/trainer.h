// The training loop: data -> steps -> metrics -> validation -> saved weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/stop.h"
#include "config/config.h"
#include "runtime/comm/communicator.h"

namespace weft {

struct TrainResult {
  int64_t steps = 0;    // optimizer steps done
  int64_t skipped = 0;  // of them: without an update, because they were not finite
  double loss = 0;      // of the last step
  std::optional<double> validation_loss;
  int signal = 0;                    // what ended the run early; 0: nothing did
  std::string weights_folder;        // empty when nothing was saved
  std::vector<std::string> written;  // what of the run is there, on rank 0
  std::string missing;               // what of its metrics is not, as a sentence
};

// Where a run writes what checkpoint.folder or metrics.file names: under job.dump_folder, unless it
// is an absolute path.
std::string output_path(const Config& config, const std::string& name);

// Trains as the config says. `stop` is looked at after every step and between the batches of a
// validation: once it is asked for, the run ends cleanly, weights saved. Throws UserError for
// whatever the user can mend, before anything is allocated where that can be known. With several
// ranks each calls it with its own `comm`, made for the mesh of data_parallel_mesh; rank 0 speaks
// and writes for all.
TrainResult train(const Config& config, const StopRequest& stop, Communicator* comm = nullptr);

}  // namespace weft
