// square_sum and norm give the same bits however the data is split into tensors, in any order, and
// whether one launch adds up the words or the words of several launches are summed as integers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/exact_sum.h"
#include "conformance/ops_under_test.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "runtime/device.h"
#include "support/call_runner.h"
#include "support/random_normal.h"

namespace weft {
namespace {

using Words = std::vector<int64_t>;

class SquareSumTest : public ::testing::TestWithParam<const Backend*> {
 protected:
  void SetUp() override { device_ = device_or_skip(*GetParam()); }

  HostTensor run(const OpDef& op, const std::vector<HostTensor>& operands) {
    Call call{.op = &op, .operands = {}, .results = {}, .attrs = {}};
    for (const HostTensor& operand : operands) call.operands.push_back(operand.type);
    call.results = op.infer(call);
    return run_call(GetParam()->kernels(), *device_, call, operands).at(0);
  }

  Words square_sum(const std::vector<HostTensor>& tensors) {
    const HostTensor acc = run(kSquareSum, tensors);
    Words words(kExactSumWords);
    std::memcpy(words.data(), acc.bytes.data(), acc.bytes.size());
    return words;
  }

  float norm(const Words& words) {
    HostTensor acc({DType::I64, {kExactSumWords}, {}});
    std::memcpy(acc.bytes.data(), words.data(), acc.bytes.size());
    return static_cast<float>(run(kNorm, {acc}).value(0));
  }

  Device* device_ = nullptr;
};

HostTensor floats(const std::vector<double>& values) {
  return HostTensor({DType::F32, {static_cast<int64_t>(values.size())}, {}}, values);
}

// Blocks whose sums of squares range from the smallest subnormal to about 1e38.
std::vector<double> wide_values(int64_t blocks) {
  const PhiloxKey key = random_key(11, 0);
  std::vector<double> values(static_cast<size_t>(blocks * kFlatBlock));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t block = static_cast<int64_t>(i) / kFlatBlock;
    const double exponent =
        -74.5 + 132.0 * static_cast<double>(block) / static_cast<double>(blocks);
    values[i] = random_normal(key, 0, i) * std::exp2(exponent);
  }
  return values;
}

HostTensor blocks_of(const std::vector<double>& values, int64_t first, int64_t last) {
  return floats({values.begin() + first * kFlatBlock, values.begin() + last * kFlatBlock});
}

Words plus(Words a, const Words& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

TEST_P(SquareSumTest, AnyPartitionInAnyOrderGivesTheSameBits) {
  const std::vector<double> values = wide_values(23);
  const Words full = square_sum({floats(values)});
  EXPECT_EQ(square_sum({blocks_of(values, 0, 9), blocks_of(values, 9, 23)}), full);
  EXPECT_EQ(
      square_sum({blocks_of(values, 22, 23), blocks_of(values, 0, 1), blocks_of(values, 1, 22)}),
      full);
  Words sum(kExactSumWords, 0);
  for (int64_t first = 23; first-- > 0;) {
    sum = plus(sum, square_sum({blocks_of(values, first, first + 1)}));
  }
  EXPECT_EQ(sum, full);
  EXPECT_TRUE(std::isfinite(norm(full)));
}

TEST_P(SquareSumTest, SmallValuesAreNotLost) {
  // 2^23 times the smaller block's value is one unit in the last place of the larger's.
  const float large = 1e19f;
  const float small = std::sqrt(large * large * 0x1p-24f);
  Words words = square_sum({floats({large})});
  const Words one = square_sum({floats({small})});
  for (int i = 0; i < 64; ++i) words = plus(words, one);
  const double expected =
      std::sqrt(static_cast<double>(large * large) + 64 * static_cast<double>(small * small));
  EXPECT_EQ(norm(words), static_cast<float>(expected));
}

TEST_P(SquareSumTest, NormIsExactAtBothEnds) {
  for (const float value : {0x1p-74f, 0x1.8p-70f, 0x1p-60f, 1.0f, 3.0f, 0x1.fp62f, 0x1p63f}) {
    EXPECT_EQ(norm(square_sum({floats({value})})), std::sqrt(value * value)) << value;
  }
  EXPECT_EQ(norm(square_sum({floats({0})})), 0);
}

TEST_P(SquareSumTest, ValuesThatAreNotFiniteGiveNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {inf, -inf, std::nan(""), 1e30}) {
    EXPECT_TRUE(std::isnan(norm(square_sum({floats({1, bad}), floats({2})})))) << bad;
  }
}

TEST_P(SquareSumTest, AsTheReferenceBitForBit) {
  const std::vector<double> values = wide_values(7);
  const Backend& reference = find_backend("reference");
  const Call call{.op = &kSquareSum,
                  .operands = {floats(values).type},
                  .results = {{DType::I64, {kExactSumWords}, {}}},
                  .attrs = {}};
  const auto device = reference.make_device({.threads = 1});
  const auto expected = run_call(reference.kernels(), *device, call, {floats(values)});
  EXPECT_EQ(run(kSquareSum, {floats(values)}).bytes, expected[0].bytes);
}

INSTANTIATE_TEST_SUITE_P(Backends, SquareSumTest, ::testing::ValuesIn(computing_backends()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace weft
