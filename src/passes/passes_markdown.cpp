// Generates docs/passes.md from the pass objects and the pipeline.
#include "passes/passes_markdown.h"

#include "base/text.h"
#include "passes/pass.h"

namespace weft {

namespace {

std::string facts(std::span<const Fact> list) {
  std::vector<std::string> names;
  for (Fact fact : list) names.emplace_back(fact_name(fact));
  return names.empty() ? "nothing" : join(names, ", ");
}

}  // namespace

std::string passes_markdown() {
  std::string text =
      "# Passes\n\n"
      "<!-- Generated from src/passes; do not edit. -->\n\n"
      "The compiler is a list of passes over one graph. The same list is used for training,\n"
      "evaluation and generation: a pass with nothing to do leaves the graph alone and says why.\n"
      "After each pass the graph is verified, and its hash is checked against the pass's "
      "report.\n\n"
      "## The list\n\n";
  size_t number = 1;
  for (const Pass* pass : pipeline()) {
    text += cat(number++, ". [", pass->name, "](#", pass->name, ")\n");
  }
  for (const Pass* pass : all_passes()) {
    text += cat("\n## ", pass->name, "\n\n", pass->doc, "\n\n- needs: ", facts(pass->needs),
                "\n- gives: ", facts(pass->gives), "\n- examples: `tests/golden/passes/",
                pass->name, "`\n");
  }
  return text;
}

}  // namespace weft
