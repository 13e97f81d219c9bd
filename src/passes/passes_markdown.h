// The reference page of the passes, generated so that it matches the code.
#pragma once

#include <string>

namespace weft {

// docs/passes.md: the pipeline in order, then each pass with its facts.
std::string passes_markdown();

}  // namespace weft
