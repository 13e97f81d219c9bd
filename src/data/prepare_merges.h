// The part of prepare() for byte-pair tokenizers: chunks of text are encoded in parallel and
// written in order, with a note of how far it got after every few.
#pragma once

#include "data/prepare.h"

namespace weft {

// Removes what killed runs left in a folder, except what is being written.
void remove_leftovers(const std::string& folder);

// Removes validation data that an earlier run left, before new training data gets its name: at no
// time do the two belong to different texts. Tells whether there was any.
bool retire_validation(const std::string& folder);

// Prepares data with options.merges, for prepare(), which has checked the fraction.
PrepareResult prepare_merges(const PrepareOptions& options);

}  // namespace weft
