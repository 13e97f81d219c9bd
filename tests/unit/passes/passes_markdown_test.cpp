// The generated page names every pass, in order, with its facts.
#include "passes/passes_markdown.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "passes/pass.h"

namespace weft {
namespace {

TEST(PassesMarkdown, HasThePipelineAndASectionPerPass) {
  const std::string page = passes_markdown();
  size_t at = 0;
  for (size_t i = 0; i < pipeline().size(); ++i) {
    const auto name = pipeline()[i]->name;
    at = page.find(cat(i + 1, ". [", name, "](#", name, ")\n"), at);
    ASSERT_NE(at, std::string::npos) << name;
  }
  for (const Pass* pass : all_passes()) {
    EXPECT_NE(page.find(cat("\n## ", pass->name, "\n\n", pass->doc)), std::string::npos);
  }
  EXPECT_NE(page.find("- needs: differentiated\n- gives: updated\n"), std::string::npos);
}

TEST(Pipeline, EveryPassIsInItAndHasItsOwnName) {
  for (const Pass* pass : all_passes()) {
    EXPECT_EQ(find_pass(pass->name), pass);
    EXPECT_NE(std::find(pipeline().begin(), pipeline().end(), pass), pipeline().end());
    EXPECT_FALSE(pass->doc.empty()) << pass->name;
  }
  EXPECT_EQ(find_pass("no_such_pass"), nullptr);
}

}  // namespace
}  // namespace weft
