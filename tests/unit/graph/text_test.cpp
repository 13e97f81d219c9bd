// The text form: canonical text prints back to the same bytes; errors name the line.
#include "graph/text.h"

#include <gtest/gtest.h>

#include "graph/verify.h"
#include "support/user_error.h"

namespace weft {
namespace {

std::string error_of(const std::string& body) {
  return user_error_of(
      [&] { parse_graph("graph g {\n  %x = input \"x\" : f32[2,8]\n" + body + "\n}\n"); });
}

TEST(Text, CanonicalTextRoundTrips) {
  const std::string text = R"text(graph step(mesh dp_replicate=2, dp_shard=4) {
  %x = input "x" : bf16[4,8] @S(0:dp_shard)
  %w = param "layers.0.attention_norm.weight" : bf16[8] @F(dp_shard)  # layers.0.attention_norm fwd
  %coordinate.dp_replicate+dp_shard = input "coordinate.dp_replicate+dp_shard" : i32[]
  %m = state "m.w" : f32[8]  # opt
  %y, %y.rstd = rms_norm(%x, %w; eps=1e-06) : bf16[4,8], f32[4]  # layers.0.attention_norm fwd
  %z, %other = rms_norm(%y, %w) : bf16[4,8], f32[4]  # layers.0.attention_norm bwd recomputed
  %c = cast(%z; dtype=f32, grad="f32") : f32[4,8]  # bwd
  %f = concat_time(%c, %c) : f32[4,16]
  return y=%y, grad.w=%f
}
)text";
  Graph graph = parse_graph(text);
  verify(graph);
  EXPECT_EQ(print_graph(graph), text);
  EXPECT_TRUE(graph.find_value("z")->def->recomputed);
}

TEST(Text, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("  %y = gelo(%x) : f32[2,8]"),
            "graph:3: unknown op \"gelo\"; did you mean \"gelu\"?");
  EXPECT_EQ(error_of("  %y = gelu(%z) : f32[2,8]"), "graph:3: %z is not defined");
  EXPECT_EQ(error_of("  %x = gelu(%x) : f32[2,8]"), "graph:3: %x is defined twice");
  EXPECT_EQ(error_of("  %y = gelu(%x) : f32[2,9]"),
            "graph:3: %y is f32[2,9] in the text, but gelu gives f32[2,8]");
  EXPECT_EQ(error_of("  %y = gelu(%x)"), "graph:3: expected result types after \":\", found \"\"");
  EXPECT_EQ(error_of("  %y = gelu(%x, %x) : f32[2,8]"),
            "graph:3: gelu takes gelu(x) -> y, found 2 operands");
  EXPECT_EQ(
      error_of("  %y = cast(%x) : f32[2,8]"),
      "graph:3: cast needs the attribute \"dtype\"; it is cast(x; dtype: dtype, grad = \"\") -> y");
  EXPECT_EQ(error_of("  %y, %z = gelu(%x) : f32[2,8], f32[2,8]"),
            "graph:3: gelu gives 1 results, found 2 names");
  EXPECT_EQ(error_of("  y = gelu(%x) : f32[2,8]"), "graph:3: \"y\" is not a value such as %x");
  EXPECT_EQ(error_of("  return y=%y"), "graph:3: %y is not defined");
  EXPECT_EQ(error_of("  return x=%x, x=%x"), "graph:3: output \"x\" is returned twice");
  EXPECT_EQ(error_of("  hello"), "graph:3: \"hello\" is not \"%name = op(...) : type\"");
}

TEST(Text, WhatIsMissingIsMissingAfterTheLastLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "f:1: "}, {"\n", "f:1: "}, {"graph g {", "f:1: "}, {"graph g {\n  return\n", "f:2: "}};
  for (const auto& [text, place] : cases) {
    expect_user_error(ExitCode::InputFile, cat(place, "the text ends before the graph does"),
                      [&text = text] { parse_graph(text, "f"); });
  }
}

TEST(Text, UnfinishedTextIsRefused) {
  EXPECT_THROW(parse_graph(""), UserError);
  EXPECT_THROW(parse_graph("graph g {"), UserError);
  EXPECT_THROW(parse_graph("graph g {\n return\n"), UserError);
  EXPECT_THROW(parse_graph("graph g {\n return\n}\nmore"), UserError);
  EXPECT_THROW(parse_graph("graph g(mesh dp=0) {\n return\n}\n"), UserError);
}

}  // namespace
}  // namespace weft
