// The runner: facts, disabling, the check of "changed", verification, dumps, report.
#include "passes/pass.h"

#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "graph/text.h"
#include "support/user_error.h"

namespace weft {
namespace {

constexpr std::string_view kForward = R"(graph train {
  %x = input "x" : f32[4,8]
  %targets = input "targets" : i32[4]
  %count = input "count" : f32[]
  %w = param "w" : f32[8,16]
  %logits = matmul(%x, %w) : f32[4,16]  # output fwd
  %loss, %loss.lse = cross_entropy(%logits, %targets, %count) : f32[], f32[4]  # loss fwd
  return loss=%loss
}
)";

std::vector<PassReport> run(Graph& graph, std::vector<const Pass*> passes,
                            const RunOptions& options = {}, const Config& config = {}) {
  DeviceSpec device;
  device.memory_bandwidth = 1e9;
  device.matmul_flops_f32 = 1e9;
  return run_passes(graph, passes, config, device, options);
}

std::vector<const Pass*> full_pipeline() {
  return {pipeline().begin(), pipeline().end()};
}

// The message of the InternalError that running `pass` throws.
std::string internal_error(const Pass& pass, Graph& graph) {
  try {
    run(graph, {&pass});
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

std::string internal_error(const Pass& pass) {
  Graph graph = parse_graph(kForward);
  return internal_error(pass, graph);
}

Node* find_node(const Graph& graph, std::string_view value) {
  return graph.find_value(value)->def;
}

constexpr Pass kSilentChange{
    .name = "silent",
    .doc = "",
    .needs = {},
    .gives = {},
    .run =
        [](Graph& graph, PassContext&) {
          graph.remove_output({OutputRole::Loss});
          return false;
        },
};

constexpr Pass kEmptyClaim{
    .name = "claims",
    .doc = "",
    .needs = {},
    .gives = {},
    .run = [](Graph&, PassContext&) { return true; },
};

constexpr Pass kUseBeforeDefinition{
    .name = "shuffle",
    .doc = "",
    .needs = {},
    .gives = {},
    .run =
        [](Graph& graph, PassContext&) {
          graph.move_before(find_node(graph, "loss"), find_node(graph, "logits"));
          return true;
        },
};

constexpr Fact kUpdated[] = {Fact::Updated};
constexpr Pass kNoUpdate{
    .name = "no_update",
    .doc = "",
    .needs = {},
    .gives = kUpdated,
    .run =
        [](Graph& graph, PassContext&) {
          graph.add_output({OutputRole::Logits}, graph.find_value("logits"));
          return true;
        },
};

// Changes the graph and claims that the facts hold afterwards.
constexpr Pass claiming(std::span<const Fact> facts) {
  return {
      .name = "claiming",
      .doc = "",
      .needs = {},
      .gives = facts,
      .run =
          [](Graph& graph, PassContext&) {
            graph.add_output({OutputRole::Other, "again"}, find_node(graph, "x")->result());
            return true;
          },
  };
}
constexpr Fact kPlaced[] = {Fact::Placed};
constexpr Pass kClaimsPlaced = claiming(kPlaced);
constexpr Fact kSharded[] = {Fact::Sharded};
constexpr Pass kClaimsSharded = claiming(kSharded);

TEST(Runner, TheFullPipelineGivesATrainingStep) {
  Graph graph = parse_graph(kForward);
  const auto reports = run(graph, full_pipeline());
  ASSERT_EQ(reports.size(), pipeline().size());
  EXPECT_NE(graph.find_value("w.new"), nullptr);
  ASSERT_EQ(graph.outputs().size(), 2u);
  EXPECT_EQ(graph.outputs()[1].name(), "grad_norm");
}

TEST(Runner, EvaluationLeavesTheForwardAlone) {
  Graph graph = parse_graph(kForward);
  RunOptions options;
  options.goal = Goal::Evaluate;
  for (const auto& report : run(graph, full_pipeline(), options)) {
    EXPECT_FALSE(report.changed) << report.pass;
    EXPECT_NE(report.note, "") << report.pass;
  }
  EXPECT_EQ(print_graph(graph), kForward);
}

TEST(Runner, APassThatHidesAChangeIsFound) {
  EXPECT_EQ(internal_error(kSilentChange), "pass silent says unchanged but the graph differs");
}

TEST(Runner, APassThatClaimsAChangeIsFound) {
  EXPECT_EQ(internal_error(kEmptyClaim), "pass claims says changed but the graph is the same");
}

TEST(Runner, AWrongGraphIsBlamedOnThePass) {
  const std::string message = internal_error(kUseBeforeDefinition);
  EXPECT_TRUE(message.starts_with("after pass shuffle: ")) << message;
  EXPECT_NE(message.find("is used before it is defined"), std::string::npos) << message;
}

TEST(Runner, AFactIsHeldAgainstTheGraph) {
  const std::string message = internal_error(kNoUpdate);
  EXPECT_NE(message.find("parameter %w is updated 0 times"), std::string::npos) << message;
}

TEST(Runner, AValueThatDoesNotLieWhereItsOpPutsItIsFound) {
  Graph graph = parse_graph(R"(graph g(mesh dp_shard=2) {
  %x = input "x" : f32[8] @S(0:dp_shard)
  %y = gelu(%x) : f32[8]
  return y=%y
}
)");
  const std::string message = internal_error(kClaimsPlaced, graph);
  EXPECT_TRUE(message.ends_with(": the operands of %y make it f32[8] @S(0:dp_shard)")) << message;
}

TEST(Runner, APartialSumThatIsUsedIsFound) {
  const std::string graph = R"(graph g(mesh dp_shard=2) {
  %x = input "x" : f32[8] @P(dp_shard)
  %y = gelu(%x) : f32[8]
  return x=%x, y=%y
}
)";
  Graph used = parse_graph(graph);
  EXPECT_TRUE(internal_error(kClaimsSharded, used)
                  .ends_with(": %y = gelu(%x) : f32[8]: %x is a partial sum"));
  Graph returned = parse_graph(graph);
  returned.remove_output({OutputRole::Other, "y"});
  returned.erase(find_node(returned, "y"));
  EXPECT_TRUE(internal_error(kClaimsSharded, returned).ends_with(": output x is a partial sum"));
}

TEST(Runner, DisabledPassesAreLeftOut) {
  Graph graph = parse_graph(kForward);
  Config config;
  config.compile.disable_passes = {"optimizer", "fuse"};
  const auto reports = run(graph, full_pipeline(), {}, config);
  EXPECT_TRUE(reports.at(3).disabled);
  EXPECT_EQ(graph.find_value("w.new"), nullptr);
  EXPECT_NE(graph.find_value("d.w"), nullptr);
}

TEST(Runner, ANeededPassCannotBeDisabled) {
  Graph graph = parse_graph(kForward);
  Config config;
  config.compile.disable_passes = {"autodiff"};
  expect_user_error(
      ExitCode::Config,
      "compile.disable_passes = [\"autodiff\"]: autodiff cannot be disabled, optimizer needs it; "
      "disable optimizer too",
      [&] { run(graph, full_pipeline(), {}, config); });
}

TEST(Runner, AnUnknownPassCannotBeDisabled) {
  Graph graph = parse_graph(kForward);
  Config config;
  config.compile.disable_passes = {"fuze"};
  expect_user_error(
      ExitCode::Config,
      "compile.disable_passes = [\"fuze\"]: no pass \"fuze\", there are mixed_precision, "
      "autodiff, loss_chunks, optimizer, simplify, place, shard_params, recompute, "
      "bucket, async_tp, overlap, fuse; did you mean \"fuse\"?",
      [&] { run(graph, full_pipeline(), {}, config); });
}

TEST(Runner, DumpsStandBeforeAndAfterEachPassWithItsNumber) {
  Graph graph = parse_graph(kForward);
  std::vector<std::string> seen;
  RunOptions options;
  Config config;
  config.compile.disable_passes = {"mixed_precision"};
  options.dump = [&](const std::string& name, const Graph& dumped, bool after) {
    seen.push_back(cat(name, after ? " after " : " before ", dumped.outputs().size()));
  };
  run(graph, {&mixed_precision, &autodiff}, options, config);
  EXPECT_EQ(seen, (std::vector<std::string>{"02-autodiff before 1", "02-autodiff after 2"}));
}

TEST(Runner, TheReportHasALinePerPass) {
  const std::vector<PassReport> reports = {
      {.pass = "autodiff",
       .changed = true,
       .milliseconds = 3.14,
       .nodes_before = 412,
       .nodes_after = 388,
       .note = "gradients of 2 parameters"},
      {.pass = "fuse", .milliseconds = 0.04, .note = "no neighbours to fuse"},
      {.pass = "simplify", .disabled = true},
  };
  EXPECT_EQ(to_string(reports),
            "01 autodiff      3.1 ms  nodes 412 -> 388  gradients of 2 parameters\n"
            "02 fuse          0.0 ms  unchanged  no neighbours to fuse\n"
            "03 simplify  disabled\n");
}

}  // namespace
}  // namespace weft
