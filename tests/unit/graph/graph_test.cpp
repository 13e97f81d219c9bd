// Edits keep definitions, uses and names consistent; the verifier reports what they cannot prevent.
#include "graph/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "graph/text.h"
#include "graph/verify.h"

namespace weft {
namespace {

constexpr const char* kText = R"(graph g {
  %a = input "a" : f32[4]
  %b = input "b" : f32[4]
  %s = add(%a, %b) : f32[4]
  %t = add(%s, %s) : f32[4]
  return t=%t
}
)";

TEST(Graph, ReplaceUsesRedirectsEveryUseAndOutput) {
  Graph graph = parse_graph(kText);
  Value* a = graph.find_value("a");
  graph.replace_uses(graph.find_value("s"), a);
  graph.replace_uses(graph.find_value("t"), a);
  verify(graph);
  EXPECT_EQ(graph.outputs()[0].value, a);
  EXPECT_EQ(graph.find_value("s")->users.size(), 0U);
}

TEST(Graph, OperandsAndResultsAreFoundByName) {
  Graph graph = parse_graph(R"(graph g {
  %x = input "x" : f32[4,8]
  %w = param "w" : f32[8]
  %y, %y.mean, %y.rstd = layer_norm(%x, %w) : f32[4,8], f32[4], f32[4]
  %sum = square_sum(%y) : i64[12]
  return sum=%sum
}
)");
  Node* norm = graph.find_value("y")->def;
  EXPECT_EQ(norm->operand("w"), graph.find_value("w"));
  EXPECT_EQ(norm->operand("b"), nullptr) << "optional and absent";
  EXPECT_EQ(norm->result("rstd"), graph.find_value("y.rstd"));
  EXPECT_EQ(norm->call().type("x").shape, (Shape{4, 8}));
  EXPECT_TRUE(norm->call().has_operand("w"));
  EXPECT_FALSE(norm->call().has_operand("b"));
  EXPECT_THROW(norm->operand("bias"), InternalError);
  EXPECT_THROW(norm->result("x"), InternalError);
  const Node* sum = graph.find_value("sum")->def;
  EXPECT_THROW(sum->operand("g"), InternalError) << "variadic";
  ASSERT_EQ(sum->variadic("g").size(), 1u);
  EXPECT_EQ(sum->variadic("g")[0], graph.find_value("y"));
  EXPECT_THROW(norm->variadic("w"), InternalError) << "not variadic";
  graph.replace_operand(graph.find_value("y")->def, "x", graph.find_value("y"));
  EXPECT_EQ(norm->operand("x"), graph.find_value("y"));
}

TEST(Graph, ReplaceUsesCanSpareOneUser) {
  Graph graph = parse_graph(kText);
  Value* s = graph.find_value("s");
  Node* gelu = graph.insert(s->users[0], kGelu, {s}, {}, {.name = "g"});
  graph.replace_uses(s, gelu->result(), gelu);
  verify(graph);
  EXPECT_EQ(print_node(*graph.find_value("t")->def), "%t = add(%g, %g) : f32[4]");
}

TEST(Graph, EraseRefusesUsedNodesAndOutputs) {
  Graph graph = parse_graph(kText);
  EXPECT_THROW(graph.erase(graph.find_value("s")->def), InternalError);
  EXPECT_THROW(graph.erase(graph.find_value("t")->def), InternalError);
  graph.remove_output({OutputRole::Other, "t"});
  graph.erase(graph.find_value("t")->def);
  graph.erase(graph.find_value("s")->def);
  verify(graph);
  EXPECT_EQ(graph.size(), 2U);
  EXPECT_EQ(graph.find_value("s"), nullptr);
}

TEST(Graph, NewNamesAreMadeUnique) {
  Graph graph = parse_graph(kText);
  Value* a = graph.find_value("a");
  EXPECT_EQ(graph.insert(nullptr, kGelu, {a}, {}, {.name = "s"})->result()->name, "s.2");
  EXPECT_EQ(graph.insert(nullptr, kGelu, {a}, {}, {.name = "s"})->result()->name, "s.3");
  const Node* t = graph.find_value("t")->def;
  EXPECT_EQ(graph.clone(t, nullptr, t->operands, ".again")->result()->name, "t.again");
}

TEST(Graph, VerifierSeesUseBeforeDefinition) {
  Graph graph = parse_graph(kText);
  graph.move_before(graph.find_value("t")->def, graph.find_value("s")->def);
  EXPECT_THROW(verify(graph), InternalError);
}

constexpr std::string_view kOverwriting = R"(graph g {
  %acc = state "acc" : f32[4]
  %g = input "g" : f32[4]
  %micro = input "micro" : i32[]
  %sum = accumulate(%acc, %g, %micro) : f32[4]
  return sum=%sum
}
)";

TEST(Graph, VerifierSeesAnOutputThatIsOverwritten) {
  Graph graph = parse_graph(kOverwriting);
  graph.add_output({OutputRole::Other, "before"}, graph.find_value("acc"));
  try {
    verify(graph);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("%acc is overwritten by %sum = accumulate(%acc, %g, %micro) : f32[4] and "
                        "is an output"),
              std::string::npos)
        << text;
  }
}

TEST(Graph, VerifierSeesReadAfterOverwrite) {
  Graph graph = parse_graph(kOverwriting);
  verify(graph);
  graph.insert(nullptr, kGelu, {graph.find_value("acc")}, {}, {.name = "late"});
  EXPECT_THROW(verify(graph), InternalError);
}

TEST(Graph, VerifierSeesWrongTypes) {
  Graph graph = parse_graph(kText);
  graph.find_value("s")->type.shape = {5};
  EXPECT_THROW(verify(graph), InternalError);
}

TEST(Graph, HashFollowsTheText) {
  Graph one = parse_graph(kText);
  Graph two = parse_graph(kText);
  EXPECT_EQ(hash(one), hash(two));
  two.find_value("s")->def->path = "layers.0";
  EXPECT_NE(hash(one), hash(two));
}

}  // namespace
}  // namespace weft
