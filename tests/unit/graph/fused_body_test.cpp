#include "graph/fused_body.h"

#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "support/user_error.h"

namespace weft {
namespace {

constexpr std::string_view kBody =
    "t0:f32 = dropout($1, $2; rate=0.1, stream=7); t1:f32 = add($0, t0); "
    "t2:bf16 = cast(t1; dtype=bf16, grad=\"f32\")";

Call fused_of(std::vector<TensorType> operands, std::string_view body) {
  return {.op = &kFused,
          .operands = std::move(operands),
          .results = {},
          .attrs = make_attrs(kFused, {{"body", std::string(body)}})};
}

TEST(FusedBody, ReadsBackWhatItPrints) {
  const FusedBody body = parse_fused_body(kBody);
  ASSERT_EQ(body.size(), 3u);
  EXPECT_EQ(body[0].op, &kDropout);
  EXPECT_EQ(body[1].args, (std::vector<FusedArg>{{true, 0}, {false, 0}}));
  EXPECT_EQ(body[2].dtype, DType::BF16);
  EXPECT_EQ(print_fused_body(body), kBody);
}

TEST(FusedBody, TypesFollowFromTheStatements) {
  const TensorType x{DType::F32, {2, 3}, {}};
  const Call call = fused_of({x, x, {DType::I32, {4}, {}}}, kBody);
  EXPECT_EQ(to_string(kFused.infer(call).at(0)), "bf16[2,3]");
}

TEST(FusedBody, RefusesTextThatIsNoBody) {
  const auto refused = [](std::string_view text, const std::string& message) {
    expect_user_error(ExitCode::Config, message, [&] { parse_fused_body(text); });
  };
  refused("", "fused: the body is empty");
  refused("t0 = add($0, $1)", "fused: \"t0 = add($0, $1)\" is not name:dtype = op(args; attrs)");
  refused("t0:f32 = matmul($0, $1)", "fused: \"matmul\" is not an elementwise op");
  refused("t0:f32 = add($0, t1)", "fused: \"t1\" is not the name of an earlier statement");
  refused("t0:f32 = gelu($0); t0:f32 = gelu($0)", "fused: \"t0\" is defined twice");
  refused("t0:f32 = gelu($0, $1)",
          "fused: \"t0:f32 = gelu($0, $1)\" has 2 arguments, expected gelu(x) -> y");
}

TEST(FusedBody, RefusesOperandsThatDoNotFit) {
  const TensorType x{DType::F32, {2, 3}, {}};
  expect_user_error(ExitCode::Config,
                    "fused: statement t0: $1 is read, but there are only 1 operands",
                    [&] { kFused.infer(fused_of({x}, "t0:f32 = add($0, $1)")); });
  expect_user_error(ExitCode::Config, "fused: t0 is bf16, but gelu gives f32",
                    [&] { kFused.infer(fused_of({x}, "t0:bf16 = gelu($0)")); });
}

}  // namespace
}  // namespace weft
