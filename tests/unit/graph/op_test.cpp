// Signatures, attribute literals, and the rules that every op definition follows.
#include "graph/op.h"

#include <gtest/gtest.h>

#include <set>

#include "graph/ops/ops.h"
#include "support/user_error.h"

namespace weft {
namespace {

TEST(Op, SignaturesParse) {
  const Signature& matmul = kMatmul.parsed();
  EXPECT_EQ(matmul.name, "matmul");
  ASSERT_EQ(matmul.operands.size(), 3U);
  EXPECT_EQ(matmul.operands[2].kind, OperandKind::Optional);
  EXPECT_EQ(matmul.attrs[matmul.attr_index("ta")].default_value, Attr(false));
  EXPECT_EQ(kSquareSum.parsed().operands[0].kind, OperandKind::Variadic);
  EXPECT_TRUE(kCast.parsed().attrs[0].required);
  EXPECT_THROW(matmul.attr_index("nothing"), InternalError);
  EXPECT_EQ(matmul.operand_index("b"), 1U);
  EXPECT_THROW(matmul.operand_index("y"), InternalError);
  EXPECT_EQ(kCrossEntropy.parsed().result_index("lse"), 1U);
  EXPECT_THROW(kCrossEntropy.parsed().result_index("logits"), InternalError);
}

TEST(Op, AttributeLiteralsRoundTrip) {
  const Attr attrs[] = {int64_t{-3},
                        1e-5,
                        true,
                        std::string("a \"b\" \\ c\nd"),
                        DType::BF16,
                        StateKey{StateRole::FirstMoment, "w"},
                        std::vector<int64_t>{1, -2},
                        std::vector<std::string>{"x", "y"},
                        std::vector<std::string>{"bf16[2,3]", "a \"b\", c"},
                        std::vector<int64_t>{}};
  for (const Attr& attr : attrs) EXPECT_EQ(parse_attr(to_string(attr), attr), attr);
  expect_user_error(ExitCode::Config, R"("f32\" ends in a lone backslash)",
                    [] { parse_attr(R"("f32\")", std::string()); });
}

TEST(Op, EveryDefinitionIsComplete) {
  std::set<std::string_view> names;
  for (const OpDef* op : all_ops()) {
    SCOPED_TRACE(op->signature);
    EXPECT_TRUE(names.insert(op->name()).second) << "the name is taken";
    EXPECT_FALSE(op->doc.empty());
    EXPECT_EQ(find_op(op->name()), op);
    if (op->traits.source) continue;
    EXPECT_NE(op->infer, nullptr);
    EXPECT_EQ(op->samples.empty(), op->traits.places);
    EXPECT_EQ(op->sharding.empty() && op->sharding_of == nullptr, op->traits.places);
    EXPECT_TRUE(op->traits.places || !op->traits.collective);
    EXPECT_EQ(op->vjp != nullptr, op->traits.differentiable);
  }
}

TEST(Op, OverwrittenOperandsAreFoundByName) {
  Call call{.op = &kAdamw, .operands = {}, .results = std::vector<TensorType>(3), .attrs = {}};
  EXPECT_EQ(overwritten_operands(call), (std::vector<int>{0, 2, 3}));
  call.op = &kAllReduce;
  call.operands.resize(3);
  EXPECT_EQ(overwritten_operands(call), (std::vector<int>{0, 1, 2}));
}

TEST(Op, AnUpdateOverwritesItsParameterByItsGradient) {
  size_t updates = 0;
  for (const OpDef* op : all_ops()) {
    if (!op->traits.update) continue;
    SCOPED_TRACE(op->signature);
    const Signature& signature = op->parsed();
    EXPECT_NO_THROW(signature.operand_index("g"));
    const Call call{.op = op,
                    .operands = {},
                    .results = std::vector<TensorType>(signature.results.size()),
                    .attrs = {}};
    EXPECT_EQ(overwritten_operands(call).at(0), static_cast<int>(signature.operand_index("w")));
    ++updates;
  }
  EXPECT_GT(updates, 0U);
}

TEST(Op, AGatherOverwritesOnlyWhatItIsGiven) {
  Call call{.op = &kAllGather,
            .operands = std::vector<TensorType>(1),
            .results = std::vector<TensorType>(2),
            .attrs = {}};
  EXPECT_EQ(overwritten_operands(call), (std::vector<int>{-1, -1}));
  EXPECT_FALSE(has_effect(call));
  call.operands.resize(3);
  EXPECT_EQ(overwritten_operands(call), (std::vector<int>{1, 2}));
  EXPECT_TRUE(has_effect(call));
}

}  // namespace
}  // namespace weft
