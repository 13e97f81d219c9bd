// weft opt: graph text through passes, as a filter and with files.
#include <gtest/gtest.h>

#include "cli/workspace.h"
#include "graph/text.h"
#include "passes/pass.h"
#include "support/tiny_plan.h"

namespace weft {
namespace {

constexpr const char* kGraph = R"(graph small {
  %x = input "x" : f32[4,8]
  %a = gelu(%x) : f32[4,8]  # layers.0 fwd
  %b = gelu(%x) : f32[4,8]  # layers.0 fwd
  %y = add(%a, %b) : f32[4,8]  # layers.0 fwd
  return y=%y
}
)";

TEST(Opt, WithoutChangesItPrintsWhatItRead) {
  const Workspace work;
  for (const std::string& graph : {std::string(kGraph), std::string(kTinyStep)}) {
    const ProcessResult result =
        work.run_ok({"opt", "-", "--passes", "recompute"}, {.input = graph});
    EXPECT_EQ(result.output, graph);
  }
}

TEST(Opt, RunsThePassesNamedInOrder) {
  const Workspace work;
  work.folder().write("graph.txt", kGraph);
  const ProcessResult one = work.run_ok({"opt", "graph.txt", "--passes", "simplify"});
  EXPECT_EQ(one.output.find("%b"), std::string::npos) << one.output;
  const ProcessResult two = work.run_ok({"opt", "graph.txt", "--passes", "simplify,fuse"});
  EXPECT_EQ(two.output,
            work.run_ok({"opt", "-", "--passes", "fuse"}, {.input = one.output}).output);
}

TEST(Opt, DumpsBeforeAndAfterEachPass) {
  const Workspace work;
  work.folder().write("graph.txt", kGraph);
  const ProcessResult result = work.run_ok(
      {"opt", "graph.txt", "--passes", "simplify,recompute", "--compile.dump_folder=dumps"});
  int files = 0;
  for (const auto& [name, text] : work.tree()) {
    if (!name.starts_with("dumps/") || name.ends_with("/")) continue;
    ++files;
    EXPECT_EQ(print_graph(parse_graph(text)), text) << name;
    const bool first = name.find("simplify.before") != std::string::npos;
    EXPECT_EQ(text, first ? std::string(kGraph) : result.output) << name;
  }
  EXPECT_GE(files, 2);
}

TEST(Opt, ChecksTheConfigAsEveryCommandDoes) {
  const ProcessResult result =
      Workspace().run({"opt", "-", "--compile.dump_passes=fuse"}, {.input = kGraph});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_EQ(result.errors,
            "weft: command line: --compile.dump_passes=fuse has no effect: it needs "
            "compile.dump_folder; remove the key\n");
}

TEST(Opt, ReportGoesToStandardError) {
  const ProcessResult result =
      Workspace().run({"opt", "-", "--passes", "simplify", "--report"}, {.input = kGraph});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.errors.find("simplify"), std::string::npos);
  EXPECT_EQ(result.output.find("simplify"), std::string::npos);
}

TEST(Opt, ListsEveryOpAndPass) {
  const Workspace work;
  const std::string ops = work.run_ok({"opt", "--list-ops"}).output;
  for (const OpDef* op : all_ops()) {
    EXPECT_NE(ops.find(std::string(op->name()) + "("), std::string::npos) << op->name();
  }
  const std::string passes = work.run_ok({"opt", "--list-passes"}).output;
  for (const Pass* pass : all_passes()) {
    EXPECT_NE(passes.find(std::string(pass->name) + "\n"), std::string::npos) << pass->name;
  }
  EXPECT_NE(work.run_ok({"opt", "--list-keys"}).output.find("dump_folder"), std::string::npos);
}

TEST(Opt, AnEditedGraphThatIsWrongIsRefusedWithItsLine) {
  std::string graph = kGraph;
  graph.replace(graph.find("%a, %b"), 6, "%a, %c");
  const ProcessResult result = Workspace().run({"opt", "-"}, {.input = graph});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors, "weft: standard input:5: %c is not defined\n");
}

}  // namespace
}  // namespace weft
