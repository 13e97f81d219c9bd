// Finds sources and the parts of an update by role.
#include "graph/update.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/names.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "graph/text.h"

namespace weft {
namespace {

constexpr std::string_view kStep = R"(graph g {
  %w = param "output.weight" : f32[8]
  %d = input "tokens" : f32[8]
  %lr = input "lr" : f32[]
  %c = input "c" : f32[]
  %n = state "adam.count" : i32[]
  %m = state "m.output.weight" : f32[8]
  %v = state "v.output.weight" : f32[8]
  %low = state "low.output.weight" : bf16[8]
  %w.new, %m.new, %v.new, %low.new = adamw_cast(%w, %d, %m, %v, %lr, %c, %n, %low) : f32[8], f32[8], f32[8], bf16[8]
  return grad.output.weight=%d
}
)";

TEST(Sources, SayWhoseAndWhatTheyAre) {
  const Graph graph = parse_graph(kStep);
  const auto def = [&](std::string_view name) -> const Node& {
    return *graph.find_value(name)->def;
  };
  EXPECT_EQ(source_name(def("lr")), names::kLr);
  EXPECT_EQ(stored_params(def("w")), std::vector<std::string>{"output.weight"});
  EXPECT_EQ(state_key(def("v")), (StateKey{StateRole::SecondMoment, "output.weight"}));
  EXPECT_TRUE(is_state(*graph.find_value("n"), StateRole::UpdateCount));
  EXPECT_FALSE(is_state(*graph.find_value("w"), StateRole::FirstMoment));
  EXPECT_EQ(find_input(graph, names::kTokens), graph.find_value("d"));
  EXPECT_EQ(find_input(graph, "m"), nullptr);
  EXPECT_EQ(find_state(graph, {StateRole::LowCopy, "output.weight"}), graph.find_value("low"));
  EXPECT_EQ(find_state(graph, {StateRole::LowCopy, "weight"}), nullptr);
  EXPECT_THROW(state_key(def("w")), InternalError);
  EXPECT_THROW(source_name(def("m")), InternalError);
}

TEST(Sources, AStateMustNotTakeTheNameOfAnother) {
  Graph graph("g");
  const TensorType type{DType::F32, {8}, {}};
  EXPECT_THROW(
      graph.insert_source(nullptr, kState, StateKey{StateRole::Other, "m.w"}, type, {.name = "s"}),
      InternalError);
  EXPECT_THROW(graph.insert_source(nullptr, kState, std::string("m.w"), type, {.name = "s"}),
               InternalError);
}

TEST(Update, IsFoundFromWhatItOverwrites) {
  const Graph graph = parse_graph(kStep);
  const auto value = [&](std::string_view name) { return graph.find_value(name); };
  Node* update = value("w.new")->def;
  for (const char* stored : {"w", "m", "v", "low"}) {
    EXPECT_EQ(update_of(*value(stored)), update) << stored;
    EXPECT_EQ(overwriting(*update, *value(stored))->name, cat(stored, ".new"));
  }
  EXPECT_EQ(update_of(*value("d")), nullptr);
  EXPECT_EQ(overwriting(*update, *value("lr")), nullptr);
  EXPECT_EQ(state_of(*update, StateRole::LowCopy), value("low"));
  EXPECT_EQ(state_of(*update, StateRole::GradientSum), nullptr);
  EXPECT_EQ(update->operand("g"), graph.find_output({OutputRole::Gradient, "output.weight"}));
}

}  // namespace
}  // namespace weft
