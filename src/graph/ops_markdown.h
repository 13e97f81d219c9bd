// The reference page of ops, generated from their definitions.
#pragma once

#include <string>

namespace weft {

// Markdown: for every op its signature, meaning, traits, gradient and samples.
std::string ops_markdown();

}  // namespace weft
