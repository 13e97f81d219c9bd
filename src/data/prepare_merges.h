// The part of prepare() for byte-pair tokenizers: chunks of text are encoded in parallel and
// written in order, and the progress is saved after every wave.
#pragma once

#include "data/prepare.h"

namespace weft {

// Removes what killed runs left in a folder, except files being written.
void remove_leftovers(const std::string& folder);

// Removes validation data of an earlier run before new training data gets its name, so that the two
// never come from different texts. Returns whether there was any.
bool retire_validation(const std::string& folder);

// Prepares data with options.merges, for prepare(), which has checked the fraction.
PrepareResult prepare_merges(const PrepareOptions& options);

}  // namespace weft
