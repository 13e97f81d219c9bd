// How a message lists the values it expects.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"

namespace weft {

// "a", "a or b", "a, b or c".
inline std::string one_of(std::vector<std::string> choices) {
  const std::string last = choices.back();
  choices.pop_back();
  return choices.empty() ? last : cat(join(choices, ", "), " or ", last);
}

}  // namespace weft
