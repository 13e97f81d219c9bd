// Where a run has saved its result.
#pragma once

#include <string>

#include "checkpoint/checkpoint_folder.h"
#include "support/temp_folder.h"

namespace weft {

// The newest checkpoint of a run in that folder, relative to it.
inline std::string newest_checkpoint(const TempFolder& folder, const std::string& run) {
  const auto saved = CheckpointFolder(folder / run + "/checkpoints").committed();
  return saved.empty() ? run + "/checkpoints/none"
                       : run + "/checkpoints/step-" + std::to_string(saved.back().step);
}

}  // namespace weft
