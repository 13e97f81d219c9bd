// take_shard copies the range of its coordinate along any dim, of tensors of any kind, and fills
// what lies beyond the end of the dim with zeros.
#include <gtest/gtest.h>

#include "conformance/ops_under_test.h"
#include "graph/ops/ops.h"
#include "support/call_runner.h"

namespace weft {
namespace {

class TakeShardTest : public ::testing::TestWithParam<const Backend*> {
 protected:
  void SetUp() override { device_ = device_or_skip(*GetParam()); }

  HostTensor run(const HostTensor& x, int64_t dim, int64_t shards, int64_t coordinate,
                 const std::string& axis = "tp") {
    Call call{.op = &kTakeShard,
              .operands = {x.type, {DType::I32, {}, {}}},
              .results = {x.type},
              .attrs = {axis, dim}};
    int64_t& size = call.results[0].shape[static_cast<size_t>(dim)];
    size = (size + shards - 1) / shards;
    const HostTensor index(call.operands[1], {static_cast<double>(coordinate)});
    return run_call(GetParam()->kernels(), *device_, call, {x, index}).at(0);
  }

  Device* device_ = nullptr;
};

HostTensor counted(DType dtype, const Shape& shape) {
  std::vector<double> values(static_cast<size_t>(count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 251 + 1);
  return HostTensor({dtype, shape, {}}, values);
}

TEST_P(TakeShardTest, CopiesTheRangeAlongAnyDim) {
  if (device_ == nullptr) return;
  for (const DType dtype : {DType::F32, DType::BF16, DType::I32}) {
    for (const Shape& shape : {Shape{3, 8, 5}, Shape{2, 129, 300}, Shape{7}}) {
      const HostTensor x = counted(dtype, shape);
      const std::vector<double> full = x.values();
      for (size_t dim = 0; dim < shape.size(); ++dim) {
        int64_t inner = 1;
        for (size_t i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
        for (int64_t coordinate = 0; coordinate < 4; ++coordinate) {
          const HostTensor y = run(x, static_cast<int64_t>(dim), 4, coordinate);
          const std::vector<double> shard = y.values();
          const int64_t part = y.type.shape[dim];
          for (int64_t i = 0; i < y.type.elements(); ++i) {
            const int64_t at = coordinate * part + i / inner % part;
            const int64_t from = (i / inner / part * shape[dim] + at) * inner + i % inner;
            const double expected = at < shape[dim] ? full.at(static_cast<size_t>(from)) : 0;
            ASSERT_EQ(shard.at(static_cast<size_t>(i)), expected)
                << to_string(x.type) << " dim " << dim << " shard " << coordinate << " at " << i;
          }
        }
      }
    }
  }
}

TEST_P(TakeShardTest, CopiesHeadAndTailOverCp) {
  if (device_ == nullptr) return;
  const HostTensor x = counted(DType::F32, {3, 24, 5});
  const std::vector<double> full = x.values();
  for (int64_t coordinate = 0; coordinate < 4; ++coordinate) {
    const std::vector<double> shard = run(x, 1, 4, coordinate, "cp").values();
    const ContextShard held{6, 4, coordinate};
    for (int64_t i = 0; i < std::ssize(shard); ++i) {
      const int64_t from = (i / 30 * 24 + held.in_full(i / 5 % 6)) * 5 + i % 5;
      ASSERT_EQ(shard[static_cast<size_t>(i)], full[static_cast<size_t>(from)]) << coordinate;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TakeShardTest, ::testing::ValuesIn(computing_backends()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace weft
