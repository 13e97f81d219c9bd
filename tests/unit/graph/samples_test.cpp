#include "graph/samples.h"

#include <gtest/gtest.h>

#include "graph/call_text.h"
#include "graph/ops/ops.h"
#include "support/user_error.h"

namespace weft {
namespace {

TEST(Samples, BecomeCallsWithResults) {
  const std::vector<Call> calls = parse_samples(kMatmul);
  ASSERT_GT(calls.size(), 1u);
  EXPECT_EQ(calls[0].operands.size(), 3u);
  EXPECT_EQ(to_string(calls[0].results.at(0)), "f32[2,3,7]");
  EXPECT_FALSE(calls[0].bool_attr("tb"));
  EXPECT_TRUE(calls[1].bool_attr("tb"));
}

TEST(Samples, SourcesHaveNone) {
  EXPECT_TRUE(parse_samples(kParam).empty());
}

TEST(Samples, AMistakeInOneIsOurs) {
  for (const char* text : {"a: f32[4], b: f32[4]; x; y", "a f32[4]", "a: f32[4]", "x: f32[4]",
                           "a: f32[4], b: f32[5]", "a: f3[4], b: f32[4]"}) {
    EXPECT_THROW(parse_samples(kAdd, text), InternalError) << text;
  }
}

TEST(CallText, SplitsOutsideQuotesAndBrackets) {
  const std::vector<std::string_view> chunks = split_top_level("a[1,2], \"b,\\\",c\", d(e,f)", ',');
  EXPECT_EQ(chunks, (std::vector<std::string_view>{"a[1,2]", "\"b,\\\",c\"", "d(e,f)"}));
  EXPECT_TRUE(split_top_level("  ", ',').empty());
}

TEST(CallText, AttributesReadBack) {
  const Attrs attrs = parse_call_attrs(kAttention, "kv_heads=2, heads=4");
  EXPECT_EQ(print_call_attrs(kAttention, attrs), "; heads=4, kv_heads=2");
  expect_user_error(ExitCode::Config, "gelu has no attribute \"rate\"; it is gelu(x) -> y",
                    [] { parse_call_attrs(kGelu, "rate=0.5"); });
  expect_user_error(ExitCode::Config,
                    "embedding_grad needs the attribute \"rows\"; it is "
                    "embedding_grad(ids, dy, coordinate?; rows: int, out = \"\") -> dw",
                    [] { parse_call_attrs(kEmbeddingGrad, ""); });
}

}  // namespace
}  // namespace weft
