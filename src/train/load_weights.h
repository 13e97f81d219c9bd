// Weights from any folder that a user may name, into a session.
#pragma once

#include <string>

#include "compile/compile.h"
#include "train/session.h"
#include "train/weights.h"

namespace weft {

// The folder of weights that a path refers to, as resolve_weights says. Throws UserError(InputFile)
// if there is none, UserError(Integrity) if it is a checkpoint whose texts are damaged.
std::string find_weights(const std::string& path);

// Throws UserError(Integrity) if the folder is a checkpoint of which a file is missing or a text,
// such as config.json or the tokenizer, is damaged.
void check_texts(const std::string& folder);

// The weights of the model in that folder or file; those of a checkpoint are verified as they are
// read.
WeightFiles open_weights(const std::string& folder, const Compiled& compiled);

// Sets the parameters of the session; each rank reads only what it stores.
void load_weights(const WeightFiles& weights, Session& session);

}  // namespace weft
