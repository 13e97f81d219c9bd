// Embedding and loss on shards of the vocabulary against the same on the full one, by the reference
// and by the cpu kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/kernels.h"
#include "runtime/reference/kernels.h"
#include "support/call_runner.h"

namespace weft {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kClasses = 11;
constexpr double kHuge = 1e30;  // in columns of padding

HostTensor floats(const Shape& shape, const std::vector<double>& values) {
  return HostTensor({DType::F32, shape, {}}, values);
}
HostTensor integers(const Shape& shape, const std::vector<double>& values) {
  return HostTensor({DType::I32, shape, {}}, values);
}
HostTensor coordinate(int64_t shard) {
  return integers({}, {static_cast<double>(shard)});
}

// Some numbers between -2 and 2.
std::vector<double> numbers(int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(2 * std::sin(7.0 * static_cast<double>(i) + 1));
  return values;
}

HostTensor concatenated(const Shape& shape, const std::vector<HostTensor>& tensors) {
  HostTensor all({tensors.at(0).type.dtype, shape, {}});
  all.bytes.clear();
  for (const HostTensor& tensor : tensors) {
    all.bytes.insert(all.bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  return all;
}

class Vocabulary : public ::testing::TestWithParam<bool> {
 protected:
  // The results of an op on these tensors.
  static std::vector<HostTensor> run(const OpDef& op, const std::vector<HostTensor>& operands,
                                     std::initializer_list<NamedAttr> attrs = {}) {
    Call call{.op = &op, .operands = {}, .results = {}, .attrs = make_attrs(op, attrs)};
    for (const HostTensor& operand : operands) call.operands.push_back(operand.type);
    call.results = op.infer(call);
    const auto device = make_host_device({.threads = 2});
    return run_call(GetParam() ? cpu_kernels() : reference_kernels(), *device, call, operands);
  }
};

// The logits of five rows, as one tensor and by shard.
class Loss : public Vocabulary {
 protected:
  const std::vector<double> values = numbers(kRows * kClasses);
  const HostTensor logits = floats({kRows, kClasses}, values);
  const HostTensor targets = integers({kRows}, {3, -1, 10, 0, 7});
  const HostTensor count = floats({}, {4});
  const HostTensor dloss = floats({}, {0.5});

  static int64_t columns(int64_t shards) { return (kClasses + shards - 1) / shards; }

  HostTensor shard_of(int64_t shard, int64_t shards) const {
    const int64_t n = columns(shards);
    std::vector<double> part;
    for (int64_t i = 0; i < kRows * n; ++i) {
      const int64_t column = shard * n + i % n;
      const auto at = static_cast<size_t>(i / n * kClasses + column);
      part.push_back(column < kClasses ? values.at(at) : kHuge);
    }
    return floats({kRows, n}, part);
  }
};

// Rounding of numbers below 8 to f32, a few times.
constexpr double kTolerance = 1e-6;

// With 8 shards of two columns the last two are all padding.
TEST_P(Loss, StatisticsOfShardsGiveTheLoss) {
  const auto expected = run(kCrossEntropy, {logits, targets, count});
  for (int64_t shards : {1, 2, 3, 8}) {
    std::vector<HostTensor> stats;
    for (int64_t s = 0; s < shards; ++s) {
      stats.push_back(run(kCrossEntropyStats, {shard_of(s, shards), targets, coordinate(s)},
                          {{"classes", kClasses}, {"shards", int64_t{1}}})[0]);
    }
    const auto found =
        run(kCrossEntropyCombine, {concatenated({shards, kRows, 3}, stats), targets, count});
    EXPECT_NEAR(found[0].value(0), expected[0].value(0), kTolerance) << shards << " shards";
    for (size_t row = 0; row < kRows; ++row) {
      EXPECT_NEAR(found[1].value(row), expected[1].value(row), kTolerance) << shards << " shards";
    }
  }
}

TEST_P(Loss, GradientsOfShardsAreTheGradient) {
  const HostTensor lse = run(kCrossEntropy, {logits, targets, count})[1];
  const auto full = run(kCrossEntropyGrad, {dloss, logits, targets, lse, count})[0].values();
  for (int64_t shards : {1, 2, 3, 8}) {
    const int64_t n = columns(shards);
    for (int64_t s = 0; s < shards; ++s) {
      const auto found =
          run(kCrossEntropyGrad, {dloss, shard_of(s, shards), targets, lse, count, coordinate(s)},
              {{"classes", kClasses}})[0]
              .values();
      for (int64_t i = 0; i < kRows * n; ++i) {
        const int64_t column = s * n + i % n;
        const auto at = static_cast<size_t>(i / n * kClasses + column);
        EXPECT_NEAR(found.at(static_cast<size_t>(i)), column < kClasses ? full.at(at) : 0,
                    column < kClasses ? kTolerance : 0)
            << shards << " shards, row " << i / n << " column " << column;
      }
    }
  }
}

// A table of eight rows, in two shards of four.
TEST_P(Vocabulary, EmbeddingsOfShardsAddUp) {
  const std::vector<double> table = numbers(8 * 3);
  const HostTensor ids = integers({6}, {0, 7, 4, 3, 3, 5});
  const HostTensor full = run(kEmbedding, {ids, floats({8, 3}, table)})[0];
  const HostTensor low = floats({4, 3}, {table.begin(), table.begin() + 12});
  const HostTensor high = floats({4, 3}, {table.begin() + 12, table.end()});
  const HostTensor first = run(kEmbedding, {ids, low, coordinate(0)})[0];
  const HostTensor second = run(kEmbedding, {ids, high, coordinate(1)})[0];
  for (size_t i = 0; i < 18; ++i) {
    EXPECT_EQ(first.value(i) + second.value(i), full.value(i)) << "element " << i;
  }
}

TEST_P(Vocabulary, GradientsOfShardsOfATableAreTheGradient) {
  const HostTensor ids = integers({6}, {0, 7, 4, 3, 3, 7});
  const HostTensor dy = floats({6, 3}, numbers(18));
  const HostTensor full = run(kEmbeddingGrad, {ids, dy}, {{"rows", int64_t{8}}})[0];
  std::vector<HostTensor> shards;
  for (int64_t s : {0, 1}) {
    shards.push_back(run(kEmbeddingGrad, {ids, dy, coordinate(s)}, {{"rows", int64_t{4}}})[0]);
  }
  EXPECT_EQ(concatenated({8, 3}, shards).bytes, full.bytes);
}

std::string table_name(const ::testing::TestParamInfo<bool>& test) {
  return test.param ? "cpu" : "reference";
}
INSTANTIATE_TEST_SUITE_P(Tables, Vocabulary, ::testing::Bool(), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, Loss, ::testing::Bool(), table_name);

}  // namespace
}  // namespace weft
