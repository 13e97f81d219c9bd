// What a run prints before its first step: the model, where its weights come from, the global
// batch, the ranks, the planned memory and the predicted time.
#pragma once

#include <string>
#include <vector>

#include "compile/compile.h"

namespace weft {

// "gpt2 baby: 10.7 M parameters, 6 layers, 384 wide, 6 heads, 65 token ids".
std::string describe_model(const ModelSpec& spec, int64_t parameters);

// The lines, each starting with a label.
std::vector<std::string> headline(const Config& config, const Compiled& compiled,
                                  const std::string& resumed_from = {});

}  // namespace weft
