// The graph as text, both directions. parse(print(g)) equals g, and print(parse(t)) equals t for
// canonical text: one node a line, result types always, attributes only where not default.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace weft {

std::string print_graph(const Graph& graph);
std::string print_node(const Node& node);

// Throws UserError(InputFile) "FILE:LINE: ..." for text that does not parse or whose types are not
// what the ops infer; `file` is what the message calls it.
Graph parse_graph(std::string_view text, const std::string& file = "graph");

}  // namespace weft
