#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "runtime/cpu/device.h"
#include "runtime/reference/kernels.h"
#include "support/call_runner.h"

namespace weft {
namespace {

// The results of an op on tensors with these values.
std::vector<HostTensor> run(const OpDef& op, const std::vector<HostTensor>& operands,
                            std::initializer_list<NamedAttr> attrs = {}) {
  Call call{.op = &op, .operands = {}, .results = {}, .attrs = make_attrs(op, attrs)};
  for (const HostTensor& operand : operands) call.operands.push_back(operand.type);
  call.results = op.infer(call);
  const auto device = make_host_device({.threads = 1});
  return run_call(reference_kernels(), *device, call, operands);
}

HostTensor floats(const std::vector<double>& values) {
  return HostTensor({DType::F32, {static_cast<int64_t>(values.size())}, {}}, values);
}

HostTensor scalar(double value) {
  return HostTensor({DType::F32, {}, {}}, {value});
}
HostTensor integer(double value) {
  return HostTensor({DType::I32, {}, {}}, {value});
}

double norm_of(const std::vector<HostTensor>& tensors) {
  return run(kNorm, run(kSquareSum, tensors))[0].value(0);
}

TEST(ReferenceNorm, IsTheEuclideanNorm) {
  EXPECT_EQ(norm_of({floats({3}), floats({4})}), 5);
  EXPECT_EQ(norm_of({floats({0, 0})}), 0);
}

TEST(ReferenceNorm, NonFiniteValuesGiveNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(norm_of({floats({1, -inf})})));
  EXPECT_TRUE(std::isnan(norm_of({floats({1}), floats({std::nan("")})})));
}

TEST(ReferenceClip, SkipsTheUpdateWhenTheNormIsNotFinite) {
  const auto skipped = run(kClip, {scalar(std::nan("")), integer(4)}, {{"max_norm", 1.0}});
  EXPECT_EQ(skipped[0].value(0), 0);
  EXPECT_EQ(skipped[1].value(0), 4);
  const auto kept = run(kClip, {scalar(0.5), integer(4)}, {{"max_norm", 1.0}});
  EXPECT_EQ(kept[0].value(0), 1);
  EXPECT_EQ(kept[1].value(0), 5);
}

TEST(ReferenceAdamw, FirstStepMovesByTheLearningRate) {
  // With m = v = 0 and count 1 the corrected step is g / |g|; decay first subtracts 0.1 * 0.5 of w.
  const auto results =
      run(kAdamw,
          {floats({2}), floats({-3}), floats({0}), floats({0}), scalar(0.5), scalar(1), integer(1)},
          {{"decay", 0.1}, {"eps", 0.0}});
  EXPECT_FLOAT_EQ(static_cast<float>(results[0].value(0)), 2 * 0.95f + 0.5f);
  EXPECT_FLOAT_EQ(static_cast<float>(results[1].value(0)), -0.3f);
  EXPECT_FLOAT_EQ(static_cast<float>(results[2].value(0)), 0.45f);
}

TEST(ReferenceAdamw, DecayFollowsTheFullFlatTensor) {
  const std::vector<double> ones(2048, 1);
  const std::vector<double> zeros(2048, 0);
  const auto results =
      run(kAdamw,
          {floats(ones), floats(zeros), floats(zeros), floats(zeros), scalar(0.5), scalar(1),
           integer(1), integer(3)},
          {{"decay", 0.5}, {"decayed", std::vector<int64_t>{0, 1024, 7168, 8192}}});
  // Blocks 6 and 7 of the flat tensor: only the second decays.
  EXPECT_EQ(results[0].value(1023), 1);
  EXPECT_EQ(results[0].value(1024), 0.75);
  EXPECT_EQ(results[0].value(2047), 0.75);
}

}  // namespace
}  // namespace weft
