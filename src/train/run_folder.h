// The folder of a run: who may write into it, what it holds, and the checkpoint that a path given
// by the user refers to.
#pragma once

#include <string>

#include "checkpoint/checkpoint_folder.h"
#include "config/config.h"

namespace weft {

// The path of checkpoint.folder or metrics.file: under job.dump_folder, unless absolute.
std::string output_path(const Config& config, const std::string& name);
// The folder of the run's checkpoints.
std::string checkpoint_path(const Config& config);

// Whether a path given by the user refers to this run: to its folder, or to one of its checkpoints.
bool is_own(const Config& config, const std::string& path);

// Throws UserError(CannotWrite) if the folder holds the result of an earlier run: steps in the
// metrics file, or checkpoints.
void check_unused(const Config& config);

// Throws UserError(CannotWrite) if the run has checkpoints after this step.
void check_newest(const Config& config, int64_t step);

// Removes the run's checkpoints after this step, and its metrics if that is -1.
void remove_results(const Config& config, int64_t after);

// The folder of the checkpoints of the run in a folder: as its config says, if it has one.
std::string checkpoints_in(const std::string& run);

// The folder of weights that a path refers to: itself, if it is a file or holds weights; the newest
// committed checkpoint, if it is the folder of a run or of its checkpoints. Otherwise the path,
// whose reader reports what is missing.
std::string resolve_weights(const std::string& path);

}  // namespace weft
