#include "plan/kernel.h"

#include <gtest/gtest.h>

#include "graph/ops/ops.h"
#include "support/user_error.h"

namespace weft {
namespace {

Decision only_f32(const Call& call) {
  return call.type(0).dtype == DType::F32 ? Decision::yes() : Decision::no("f32 only");
}

Decision only_short(const Call& call) {
  const int64_t rows = call.type(0).shape.at(0);
  return rows <= 4 ? Decision::yes() : Decision::no(cat(rows, " rows > 4"));
}

const std::vector<Kernel> kTable = {
    {.op = "gelu", .name = "short", .supports = only_short},
    {.op = "add", .name = "any"},
    {.op = "gelu", .name = "f32", .supports = only_f32},
};

Call gelu_call(DType dtype, int64_t rows) {
  const TensorType type{dtype, {rows}, {}};
  return {&kGelu, {type}, {type}, {}};
}

TEST(ChooseKernel, TakesTheFirstRowThatSupportsTheCall) {
  EXPECT_EQ(choose_kernel(kTable, gelu_call(DType::F32, 4), "test", "y").name, "short");
  EXPECT_EQ(choose_kernel(kTable, gelu_call(DType::F32, 5), "test", "y").name, "f32");
  EXPECT_EQ(choose_kernel(kTable, gelu_call(DType::BF16, 4), "test", "y").name, "short");
}

TEST(ChooseKernel, NamesEveryCandidatesReason) {
  expect_user_error(ExitCode::Config,
                    "no test kernel for gelu %l0.mlp.act: short: 5 rows > 4; f32: f32 only",
                    [] { choose_kernel(kTable, gelu_call(DType::BF16, 5), "test", "l0.mlp.act"); });
}

TEST(ChooseKernel, SaysWhenTheTableHasNoRow) {
  expect_user_error(ExitCode::Config,
                    "no test kernel for gelu %y: the backend has none for this op",
                    [] { choose_kernel({}, gelu_call(DType::F32, 1), "test", "y"); });
}

TEST(MayShareMemory, NeedsATraitAndAnOperandOfTheResultsShapeAndSize) {
  const auto share = [](const OpDef& op, const TensorType& from, const TensorType& to) {
    return may_share_memory({&op, {from}, {to}, {}}, 0);
  };
  const TensorType f32{DType::F32, {4}, {}};
  const TensorType bf16{DType::BF16, {4}, {}};
  const TensorType f16{DType::F16, {4}, {}};
  EXPECT_TRUE(share(kGelu, f32, f32));
  EXPECT_TRUE(share(kCast, bf16, f16));
  EXPECT_TRUE(share(kCrossEntropyGrad, f32, f32));
  EXPECT_FALSE(share(kCast, bf16, f32)) << "another size";
  EXPECT_FALSE(share(kDropout, {DType::I32, {4}, {}}, f32)) << "the key of the random numbers";
  EXPECT_FALSE(share(kGelu, {DType::F32, {2, 2}, {}}, f32)) << "another shape";
  EXPECT_FALSE(share(kRope, f32, f32)) << "reads other elements than it writes";
}

}  // namespace
}  // namespace weft
