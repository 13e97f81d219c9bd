// Declarations of every model definition; all_models in model.cpp lists them.
#pragma once

#include "model/model.h"

namespace weft {

extern const ModelDef kGpt2, kLlama, kQwen3, kQwen3Moe, kDeepseekV3, kLlama4;

}  // namespace weft
