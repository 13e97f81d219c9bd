// Prints and parses graphs. parse(print(g)) equals g, and print(parse(t)) equals t for canonical
// text: one node per line, all result types, only the attributes that are not default.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace weft {

std::string print_graph(const Graph& graph);
std::string print_node(const Node& node);

// Throws UserError(InputFile) "FILE:LINE: ..." for text that does not parse or whose types differ
// from the inferred ones. `file` is the file name used in messages.
Graph parse_graph(std::string_view text, const std::string& file = "graph");

}  // namespace weft
