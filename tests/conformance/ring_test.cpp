// The keys of a sequence that ranks share, block after block as they come around a ring, give what
// one call with all of them gives: on every rank, with documents that cross shards and dropout.
#include <gtest/gtest.h>

#include <cmath>

#include "base/context_shard.h"
#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"

namespace weft {
namespace {

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kHeadDim = 8;

struct Case {
  int64_t shards = 2;
  int64_t rows = 6;  // of a shard
  bool documents = false;
  bool dropout = false;
  int64_t value_dim = kHeadDim;
  int64_t chunk = 0;
};

// The rows of [batch,time,width] that the shard has.
HostTensor rows_of(const HostTensor& full, const ContextShard& shard) {
  TensorType type = full.type;
  type.shape[1] = shard.size;
  const std::vector<double> from = full.values();
  const int64_t width = type.shape.size() > 2 ? type.shape[2] : 1;
  std::vector<double> values;
  for (int64_t i = 0; i < type.elements(); ++i) {
    const int64_t b = i / width / shard.size;
    const int64_t row = shard.in_full(i / width % shard.size);
    values.push_back(from[static_cast<size_t>((b * shard.full_size() + row) * width + i % width)]);
  }
  return {type, values};
}

HostTensor positions_of(const Case& test) {
  const int64_t length = test.shards * test.rows;
  std::vector<double> positions;
  for (int64_t i = 0; i < kBatch * length; ++i) {
    const int64_t document = test.documents ? length / 3 + i / length : length;
    positions.push_back(static_cast<double>(i % length % document));
  }
  return {TensorType{DType::I32, {kBatch, length}, {}}, positions};
}

HostTensor scalar(int64_t value) {
  return {TensorType{DType::I32, {}, {}}, {static_cast<double>(value)}};
}

// What the ranks share, and one backend that computes.
class Ring {
 public:
  Ring(const Case& test, const Backend& backend, Device& device)
      : test_(test), backend_(backend), device_(device) {
    const int64_t length = test.shards * test.rows;
    const auto make = [&](int64_t width, uint64_t seed) {
      return random_tensor({DType::F32, {kBatch, length, width}, {}}, seed);
    };
    q_ = make(kHeads * kHeadDim, 1);
    kv_ = make(kKvHeads * (kHeadDim + test.value_dim), 2);
    dy_ = make(kHeads * test.value_dim, 3);
    positions_ = positions_of(test);
  }

  void expect_same_as_one_call(int64_t rank) {
    const ContextShard own{test_.rows, test_.shards, rank};
    const HostTensor q = rows_of(q_, own), dy = rows_of(dy_, own);
    const std::vector<HostTensor> shared = {rows_of(positions_, own), scalar(rank)};
    const auto one = run(kContextAttention, {q, kv_}, shared, 1, 0);
    auto ring = run(kContextAttention, {q, rows_of(kv_, own)}, shared, test_.shards, 0);
    for (int64_t block = 1; block < test_.shards; ++block) {
      const HostTensor kv = rows_of(kv_, own.back(block));
      ring = run(kContextAttentionMore, {q, kv, ring[0], ring[1]}, shared, test_.shards, block);
    }
    expect_near(ring[0], one[0], "y");
    expect_near(ring[1], one[1], "lse");

    const auto grads = run(kContextAttentionGrad, {dy, q, kv_, one[0], one[1]}, shared, 1, 0);
    std::vector<double> dq(static_cast<size_t>(q.type.elements()), 0);
    for (int64_t block = 0; block < test_.shards; ++block) {
      const ContextShard owner = own.back(block);
      const auto part = run(kContextAttentionGrad, {dy, q, rows_of(kv_, owner), one[0], one[1]},
                            shared, test_.shards, block);
      const std::vector<double> added = part[0].values();
      for (size_t i = 0; i < dq.size(); ++i) dq[i] += added[i];
      expect_near(part[1], rows_of(grads[1], owner), cat("dkv of block ", block));
    }
    expect_near(HostTensor(q.type, dq), grads[0], "dq");
  }

 private:
  std::vector<HostTensor> run(const OpDef& op, std::vector<HostTensor> inputs,
                              const std::vector<HostTensor>& shared, int64_t blocks,
                              int64_t block) {
    inputs.insert(inputs.end(), shared.begin(), shared.end());
    if (test_.dropout) inputs.emplace_back(TensorType{DType::I32, {4}, {}}, rng_);
    Call call{.op = &op, .operands = {}, .results = {}, .attrs = {}};
    for (const HostTensor& input : inputs) call.operands.push_back(input.type);
    call.attrs = make_attrs(op, {{"heads", kHeads},
                                 {"kv_heads", kKvHeads},
                                 {"value_dim", test_.value_dim},
                                 {"chunk", test_.chunk},
                                 {"dropout", test_.dropout ? 0.2 : 0.0},
                                 {"stream", int64_t{7}},
                                 {"blocks", blocks},
                                 {"block", block}});
    call.results = op.infer(call);
    return run_call(backend_.kernels(), device_, call, inputs);
  }

  // Blocks are scaled to the largest score so far one after the other.
  static void expect_near(const HostTensor& found, const HostTensor& expected,
                          const std::string& what) {
    const std::vector<double> a = found.values(), b = expected.values();
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 2e-6 * (1 + std::fabs(b[i]))) << what << ", element " << i;
    }
  }

  const std::vector<double> rng_ = {17, 3, 5, 2};
  Case test_;
  const Backend& backend_;
  Device& device_;
  HostTensor q_, kv_, dy_, positions_;
};

class RingTest : public ::testing::TestWithParam<const Backend*> {};

TEST_P(RingTest, BlocksGiveWhatOneCallGives) {
  Device* device = device_or_skip(*GetParam());
  if (device == nullptr) return;
  const Case cases[] = {
      {.shards = 2, .rows = 6},
      {.shards = 3, .rows = 4, .documents = true},
      {.shards = 4, .rows = 10, .documents = true, .dropout = true},
      {.shards = 2, .rows = 270, .dropout = true},
      {.shards = 3, .rows = 214, .documents = true},
      {.shards = 3, .rows = 6, .value_dim = 5, .chunk = 4},
      {.shards = 2, .rows = 200, .documents = true, .value_dim = 12, .chunk = 90},
  };
  for (const Case& test : cases) {
    for (int64_t rank = 0; rank < test.shards; ++rank) {
      SCOPED_TRACE(cat("rank ", rank, " of ", test.shards, ", ", test.rows, " rows"));
      Ring(test, *GetParam(), *device).expect_same_as_one_call(rank);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RingTest, ::testing::ValuesIn(computing_backends()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace weft
