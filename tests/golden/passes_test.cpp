// Runs every golden of tests/golden/passes/<pass>. With --update the files are rewritten with what
// the passes do now; a reviewer then reads the diff.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include "base/text.h"
#include "graph/text.h"
#include "passes/pass.h"
#include "support/golden_files.h"
#include "support/golden_pass.h"
#include "support/read_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxGraphLines = 30;
bool update = false;

std::string pass_of(const fs::path& file) {
  return file.parent_path().filename();
}

class GoldenTest : public testing::TestWithParam<fs::path> {};

TEST_P(GoldenTest, GivesWhatItSays) {
  const Golden golden = parse_golden(read_file(GetParam()));
  const Golden actual = run_golden(golden);
  if (update) {
    std::ofstream(GetParam(), std::ios::binary) << print_golden(actual);
    return;
  }
  EXPECT_EQ(print_golden(golden), read_file(GetParam())) << "the file is not in canonical form";
  if (print_golden(golden) != print_golden(actual)) {
    ADD_FAILURE() << golden.sentence << "\n"
                  << unified_diff(print_golden(golden), print_golden(actual));
  }
}

TEST_P(GoldenTest, GraphsAreShortAndPrintToTheirText) {
  const Golden golden = parse_golden(read_file(GetParam()));
  std::vector<std::string> graphs = {golden.before};
  if (golden.outcome == "after") graphs.push_back(golden.expected);
  for (const auto& text : graphs) {
    EXPECT_EQ(trim(print_graph(parse_graph(text))), text);
    EXPECT_LE(split(text, '\n').size(), kMaxGraphLines);
  }
}

TEST_P(GoldenTest, RunsThePassOfItsFolder) {
  const Golden golden = parse_golden(read_file(GetParam()));
  std::set<std::string> names;
  for (const auto& pass : parse_run(golden.run)) names.insert(pass.name);
  EXPECT_TRUE(names.contains(pass_of(GetParam()))) << golden.run;
}

INSTANTIATE_TEST_SUITE_P(Passes, GoldenTest, testing::ValuesIn(golden_files("passes", ".txt")),
                         [](const auto& golden) {
                           return pass_of(golden.param) + "_" + golden.param.stem().string();
                         });

TEST(Goldens, EveryPassHasAChangeAndANothingToDo) {
  std::map<std::string, std::set<std::string>> outcomes;
  for (const auto& file : golden_files("passes", ".txt")) {
    outcomes[pass_of(file)].insert(parse_golden(read_file(file)).outcome);
  }
  for (const Pass* pass : all_passes()) {
    const auto& found = outcomes[std::string(pass->name)];
    EXPECT_TRUE(found.contains("after")) << pass->name;
    EXPECT_TRUE(found.contains("unchanged")) << pass->name;
  }
  for (const auto& [folder, found] : outcomes) EXPECT_NE(find_pass(folder), nullptr) << folder;
}

constexpr std::string_view kGraph = "graph g {\n  %x = input \"x\" : f32[8]\n  return y=%x\n}";

TEST(Goldens, AGoldenWithoutItsSentenceIsRejected) {
  const std::string rest = cat("run: simplify\n--- before\n", kGraph, "\n--- unchanged\n");
  EXPECT_NO_THROW(parse_golden("Nothing is done.\n" + rest));
  EXPECT_THROW(parse_golden(rest), std::runtime_error);
  EXPECT_THROW(parse_golden("simplify\n" + rest), std::runtime_error);
}

TEST(Goldens, AWrongOutcomeIsFound) {
  const std::string text =
      cat("Nothing is done.\nrun: simplify\n--- before\n", kGraph, "\n--- error\nsomething\n");
  EXPECT_EQ(run_golden(parse_golden(text)).outcome, "unchanged");
}

TEST(Goldens, TheDifferenceShowsItsLinesAndTheirNeighbours) {
  EXPECT_EQ(unified_diff("a\nb\nc\nd\ne\nf", "a\nb\nc\nd\nE\nf"),
            "--- expected\n+++ actual\n@@\n b\n c\n d\n-e\n+E\n f\n");
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) weft::update |= std::string_view(argv[i]) == "--update";
  return RUN_ALL_TESTS();
}
