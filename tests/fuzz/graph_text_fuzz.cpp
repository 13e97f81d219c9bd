// Every accepted graph must print to a text that parses to the same graph.
#include "fuzz/fuzz.h"
#include "graph/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::only_user_errors([&] {
    const weft::Graph graph = weft::parse_graph(weft::text_of(data, size));
    const std::string printed = weft::print_graph(graph);
    weft::must_hold(weft::print_graph(weft::parse_graph(printed)) == printed);
  });
  return 0;
}
