// Bits that runs on different meshes must share: a row of a grouped matmul does not depend on the
// rows around it, nor a weight gradient on how the sources are divided among ranks. And the choice
// of experts where scores are equal or not numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "base/tree_level.h"
#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 203, kExperts = 6;

// The expert of a row: all alike, most on one and none on another, all on one.
using Load = int64_t (*)(int64_t row);
constexpr Load kLoads[] = {
    [](int64_t row) { return row % kExperts; },
    [](int64_t row) { return row % 3 == 0 ? row / 3 % 2 * 5 : int64_t{2}; },
    [](int64_t) { return int64_t{3}; },
};

// Rows of tokens as route places them: divided among the sources, then by expert.
struct Layout {
  int64_t sources, parts, slots;
  std::vector<int64_t> places;  // of every token
  HostTensor offsets;

  Layout(Load load, int64_t all_sources, int64_t all_parts)
      : sources(all_sources), parts(all_parts), slots(kTokens / sources + 3), places(kTokens) {
    std::vector<double> ends;
    for (int64_t source = 0; source < sources; ++source) {
      for (int64_t part = 0; part < parts; ++part) {
        int64_t row = 0;
        ends.push_back(0);
        for (int64_t q = 0; q < kExperts / parts; ++q) {
          for (int64_t token = 0; token < kTokens; ++token) {
            if (token * sources / kTokens != source) continue;
            if (load(token) != part * (kExperts / parts) + q) continue;
            places[static_cast<size_t>(token)] = (source * parts + part) * slots + row++;
          }
          ends.push_back(static_cast<double>(row));
        }
      }
    }
    offsets = HostTensor({DType::I32, {sources, parts, kExperts / parts + 1}, {}}, ends);
  }

  TensorType type(DType dtype, int64_t length) const {
    return {dtype, {sources, parts, slots, length}, {}};
  }

  // Rows that no token has are NaN.
  HostTensor rows(const HostTensor& tokens) const {
    HostTensor result(type(tokens.type.dtype, tokens.type.shape[1]));
    const auto bytes = tokens.type.bytes() / kTokens;
    for (int64_t token = 0; token < kTokens; ++token) {
      std::memcpy(result.bytes.data() + places[static_cast<size_t>(token)] * bytes,
                  tokens.bytes.data() + token * bytes, static_cast<size_t>(bytes));
    }
    return result;
  }

  HostTensor tokens(const HostTensor& rows) const {
    HostTensor result({rows.type.dtype, {kTokens, rows.type.shape[3]}, {}});
    const auto bytes = result.type.bytes() / kTokens;
    for (int64_t token = 0; token < kTokens; ++token) {
      std::memcpy(result.bytes.data() + token * bytes,
                  rows.bytes.data() + places[static_cast<size_t>(token)] * bytes,
                  static_cast<size_t>(bytes));
    }
    return result;
  }
};

// Elements [first, first + count) of dim 0.
HostTensor part_of(const HostTensor& tensor, int64_t first, int64_t count) {
  TensorType type = tensor.type;
  const int64_t bytes = type.bytes() / type.shape[0];
  type.shape[0] = count;
  HostTensor result(type);
  std::memcpy(result.bytes.data(), tensor.bytes.data() + first * bytes,
              static_cast<size_t>(count * bytes));
  return result;
}

class ExpertsTest : public ::testing::TestWithParam<const Backend*> {
 protected:
  void SetUp() override { device_ = device_or_skip(*GetParam()); }

  std::vector<HostTensor> run(const OpDef& op, const std::vector<HostTensor>& operands,
                              const std::vector<TensorType>& results,
                              std::initializer_list<NamedAttr> attrs) {
    Call call{&op, {}, results, make_attrs(op, attrs)};
    for (const HostTensor& operand : operands) call.operands.push_back(operand.type);
    return run_call(GetParam()->kernels(), *device_, call, operands);
  }

  bool skipped() const { return device_ == nullptr; }

 private:
  Device* device_ = nullptr;
};

class GroupedMatmulTest : public ExpertsTest {
 protected:
  static constexpr int64_t kDepth = 408, kCols = 392;

  HostTensor multiply(const HostTensor& tokens, const HostTensor& w, bool tb,
                      const Layout& layout) {
    const HostTensor y = run(kGroupedMatmul, {layout.rows(tokens), layout.offsets, w},
                             {layout.type(w.type.dtype, kCols)}, {{"tb", tb}})
                             .front();
    return layout.tokens(y);
  }

  HostTensor grad_w(const HostTensor& a, const HostTensor& b, const HostTensor& offsets) {
    const TensorType result{DType::F32, {kExperts, a.type.shape[3], b.type.shape[3]}, {}};
    return run(kGroupedMatmulGradW, {a, b, offsets}, {result}, {{"out", std::string("f32")}})
        .front();
  }

  // The gradient if `ranks` ranks have equal numbers of the sources, added as a tree.
  std::vector<double> grad_of_ranks(const HostTensor& a, const HostTensor& b,
                                    const HostTensor& offsets, int64_t ranks) {
    const int64_t each = a.type.shape[0] / ranks;
    const std::function<std::vector<double>(int64_t, int64_t)> sum = [&](int64_t first,
                                                                         int64_t count) {
      if (count == 1) {
        return grad_w(part_of(a, first * each, each), part_of(b, first * each, each),
                      part_of(offsets, first * each, each))
            .values();
      }
      const int64_t half = tree_split(count);
      std::vector<double> left = sum(first, half);
      const std::vector<double> right = sum(first + half, count - half);
      for (size_t i = 0; i < left.size(); ++i) {
        left[i] = static_cast<double>(static_cast<float>(left[i]) + static_cast<float>(right[i]));
      }
      return left;
    };
    return sum(0, ranks);
  }
};

TEST_P(GroupedMatmulTest, RowsDoNotDependOnOtherRows) {
  if (skipped()) return;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const bool tb : {false, true}) {
      const HostTensor tokens = random_tensor({dtype, {kTokens, kDepth}, {}}, 1);
      const Shape shape = tb ? Shape{kExperts, kCols, kDepth} : Shape{kExperts, kDepth, kCols};
      const HostTensor w = random_tensor({dtype, shape, {}}, 2);
      for (const Load load : kLoads) {
        const HostTensor expected = multiply(tokens, w, tb, Layout(load, 1, 1));
        for (const double value : expected.values()) ASSERT_FALSE(std::isnan(value));
        for (const auto& [sources, parts] : {std::pair(1, 3), {2, 1}, {7, 2}, {kTokens, 1}}) {
          const HostTensor found = multiply(tokens, w, tb, Layout(load, sources, parts));
          EXPECT_EQ(found.bytes, expected.bytes)
              << dtype_name(dtype) << ", " << sources << " sources, " << parts << " parts";
        }
      }
    }
  }
}

TEST_P(GroupedMatmulTest, GradientsDoNotDependOnTheRanksOfSources) {
  if (skipped()) return;
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const HostTensor a = random_tensor({dtype, {kTokens, 104}, {}}, 1);
    const HostTensor b = random_tensor({dtype, {kTokens, kCols}, {}}, 2);
    for (const Load load : kLoads) {
      for (const int64_t sources : {3, 4, 7, 8}) {
        const Layout layout(load, sources, 2);
        const HostTensor a_rows = layout.rows(a), b_rows = layout.rows(b);
        const auto expected = grad_of_ranks(a_rows, b_rows, layout.offsets, 1);
        for (const int64_t ranks : {int64_t{2}, int64_t{4}, sources}) {
          if (sources % ranks != 0) continue;
          EXPECT_EQ(grad_of_ranks(a_rows, b_rows, layout.offsets, ranks), expected)
              << dtype_name(dtype) << ", " << sources << " sources on " << ranks << " ranks";
        }
      }
    }
  }
}

TEST_P(GroupedMatmulTest, ExpertsWithoutRowsGetZeros) {
  if (skipped()) return;
  const HostTensor a = random_tensor({DType::F32, {kTokens, 16}, {}}, 1);
  const HostTensor b = random_tensor({DType::F32, {kTokens, 24}, {}}, 2);
  const Layout layout([](int64_t) { return int64_t{3}; }, 2, 1);
  const auto dw = grad_w(layout.rows(a), layout.rows(b), layout.offsets).values();
  for (size_t i = 0; i < dw.size(); ++i) {
    const bool of_expert = i / (16 * 24) == 3;
    EXPECT_TRUE(of_expert ? dw[i] != 0 : dw[i] == 0) << i;
  }
}

class RouterTest : public ExpertsTest {
 protected:
  static constexpr int64_t kTopK = 3;

  // The experts of each token.
  std::vector<std::vector<double>> choose(const std::vector<double>& logits, int64_t experts,
                                          std::initializer_list<NamedAttr> attrs,
                                          const std::vector<double>& bias = {}) {
    const int64_t tokens = std::ssize(logits) / experts;
    std::vector<HostTensor> operands = {HostTensor({DType::F32, {1, tokens, experts}, {}}, logits)};
    if (!bias.empty()) operands.emplace_back(TensorType{DType::F32, {experts}, {}}, bias);
    const Shape shape{1, tokens, kTopK};
    const auto index =
        run(kRouter, operands, {{DType::F32, shape, {}}, {DType::I32, shape, {}}}, attrs)[1]
            .values();
    std::vector<std::vector<double>> choices;
    for (int64_t token = 0; token < tokens; ++token) {
      const auto first = index.begin() + token * kTopK;
      choices.emplace_back(first, first + kTopK);
    }
    return choices;
  }
};

using Choices = std::vector<std::vector<double>>;

TEST_P(RouterTest, OfEqualScoresTheLowerIndexWins) {
  if (skipped()) return;
  const std::vector<double> logits = {1,   1, 1,    1, 1, 1, 1, 1,  // all
                                      -2,  3, 0,    3, 1, 3, 0, 1,  // some
                                      0.0, 0, -0.0, 0, 0, 0, 0, 0};
  EXPECT_EQ(choose(logits, 8, {{"top_k", kTopK}}), (Choices{{0, 1, 2}, {1, 3, 5}, {0, 1, 2}}));
  // Scores that f32 cannot distinguish are chosen by their logits.
  std::vector<double> high(8, 30.0);
  high[5] = 31;
  high[2] = 32;
  EXPECT_EQ(choose(high, 8, {{"top_k", kTopK}, {"sigmoid", true}}), (Choices{{2, 5, 0}}));
  // Groups, too: all are equal in the first token; 2 and 3 have the larger sums in the second.
  const std::vector<double> grouped = {0, 0, 0, 0, 0, 0, 0, 0, 4, -9, 1, -9, 1, 1, 1, 2};
  EXPECT_EQ(choose(grouped, 8,
                   {{"top_k", kTopK},
                    {"sigmoid", true},
                    {"groups", int64_t{4}},
                    {"keep_groups", int64_t{2}}}),
            (Choices{{0, 1, 2}, {7, 4, 5}}));
  // A bias moves choices.
  EXPECT_EQ(choose(std::vector<double>(8, 0.0), 8, {{"top_k", kTopK}, {"sigmoid", true}},
                   {0, 0, 0, 0, 0, 0, 0.25, 0}),
            (Choices{{6, 0, 1}}));
}

TEST_P(RouterTest, ValuesThatAreNotNumbersChooseDifferentExperts) {
  if (skipped() || GetParam()->name == "reference") return;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> logits = {nan, nan, nan,       nan,       nan,       nan,
                                      1,   nan, -infinity, -infinity, -infinity, nan};
  for (const int64_t groups : {1, 2}) {
    const auto choices =
        choose(logits, 6,
               {{"top_k", kTopK}, {"sigmoid", true}, {"groups", groups}, {"keep_groups", groups}});
    for (const auto& chosen : choices) {
      EXPECT_EQ(std::set<double>(chosen.begin(), chosen.end()).size(), chosen.size());
      for (const double expert : chosen) EXPECT_TRUE(expert >= 0 && expert < 6) << expert;
    }
  }
}

const auto name_of = [](const auto& test) { return std::string(test.param->name); };
INSTANTIATE_TEST_SUITE_P(Backends, GroupedMatmulTest, ::testing::ValuesIn(compared_backends()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Backends, RouterTest, ::testing::ValuesIn(computing_backends()), name_of);

}  // namespace
}  // namespace weft
