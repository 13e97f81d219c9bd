// Sharding rules: parsing, placements of results for each family of ops, and errors.
#include "graph/sharding.h"

#include <gtest/gtest.h>

#include "graph/call_text.h"
#include "graph/ops/ops.h"
#include "graph/samples.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Texts = std::vector<std::string>;

Call call_of(const OpDef& op, const Texts& operands, std::string_view attrs) {
  Call call{.op = &op, .operands = {}, .results = {}, .attrs = parse_call_attrs(op, attrs)};
  for (const std::string& text : operands) call.operands.push_back(parse_type(text));
  call.results = op.infer(call);
  return call;
}

// Result types with the placements from the rule.
Texts placed(const OpDef& op, const Texts& operands, std::string_view attrs = "") {
  Call call = call_of(op, operands, attrs);
  const std::vector<Placement> placements = result_placements(call);
  Texts texts;
  for (size_t i = 0; i < placements.size(); ++i) {
    call.results[i].placement = placements[i];
    texts.push_back(to_string(call.results[i]));
  }
  return texts;
}

void expect_refusal(const std::string& message, const OpDef& op, const Texts& operands,
                    std::string_view attrs = "") {
  expect_user_error(ExitCode::Config, message, [&] { placed(op, operands, attrs); });
}

TEST(Sharding, RulesParse) {
  const ShardingRule rule = parse_sharding("...k, kN, -> ...N, ");
  ASSERT_EQ(rule.operands.size(), 3u);
  EXPECT_EQ(rule.operands[0],
            (ShardingTerm{.leading = true, .dims = "k", .parts = {{}}, .counted = {""}}));
  EXPECT_EQ(rule.operands[1], (ShardingTerm{.dims = "kN", .parts = {{}, {}}, .counted = {"", ""}}));
  EXPECT_EQ(rule.operands[2], ShardingTerm{});
  EXPECT_EQ(rule.results.size(), 2u);
  EXPECT_TRUE(parse_sharding("...+ -> W").operands[0].added);
  const ShardingTerm packed = parse_sharding("bh(8|4)c -> b").operands[0];
  EXPECT_EQ(packed.dims, "bhc");
  EXPECT_EQ(packed.parts, (std::vector<std::vector<int64_t>>{{}, {8, 4}, {}}));
  const ShardingTerm counting = parse_sharding("bs -> g<bs>R").results[0];
  EXPECT_EQ(counting.dims, "gR");
  EXPECT_EQ(counting.counted, (std::vector<std::string>{"bs", ""}));
  EXPECT_THROW(parse_sharding("a, b"), InternalError);
  EXPECT_THROW(parse_sharding("a! -> b"), InternalError);
  EXPECT_THROW(parse_sharding("aa -> b"), InternalError);
}

TEST(Sharding, ShardsOverAllExpertAxesAreShardsOverTheOthers) {
  const Mesh mesh = parse_mesh("dp_replicate=2, dp_shard=2, tp=2; edp=2, ep=2");
  const auto dense = [&](const std::string& placement) {
    TensorType type = parse_type("f32[8,8]" + placement);
    type.placement = by_dense_axes(type.placement, mesh);
    return to_string(type).substr(8);
  };
  EXPECT_EQ(dense(" @S(0:edp) @S(0:ep)"), " @S(0:dp_shard) @S(0:tp)");
  EXPECT_EQ(dense(" @S(0:dp_replicate) @S(0:edp) @S(0:ep)"),
            " @S(0:dp_replicate) @S(0:dp_shard) @S(0:tp)");
  for (const char* same :
       {" @S(0:edp) @S(1:ep)", " @S(0:ep)", " @P(edp) @S(0:ep)", " @F(edp)", ""}) {
    EXPECT_EQ(dense(same), same);
  }
}

// Each element of what the norm sums lies on one rank; a copy over edp is refused.
TEST(Sharding, SumsOverShardsOfExpertsAndOthers) {
  const Mesh mesh = parse_mesh("dp_shard=2, tp=2; edp=2, ep=2");
  const auto sum_with = [&](const std::string& experts) {
    Call call{.op = find_op("square_sum"), .operands = {}, .results = {}, .attrs = {}};
    call.operands = {parse_type("f32[4096] @F(dp_shard) @F(tp)"), parse_type(experts)};
    call.results = {parse_type("i64[12]")};
    TensorType sum = call.results[0];
    sum.placement = result_placements(call, mesh).at(0);
    return to_string(sum);
  };
  EXPECT_EQ(sum_with("f32[8192] @F(edp) @S(0:ep)"), "i64[12] @P(dp_shard) @P(tp)");
  EXPECT_NE(user_error_of([&] { sum_with("f32[8,1024] @S(0:ep)"); }), "");
}

TEST(Sharding, EveryRuleFitsTheSamplesOfItsOp) {
  for (const OpDef* op : all_ops()) {
    for (const Call& call : parse_samples(*op)) {
      const ShardingRule rule = sharding_rule(call);
      const auto fits = [](const ShardingTerm& term, const TensorType& type) {
        return term.leading ? type.shape.size() >= term.dims.size()
                            : type.shape.size() == term.dims.size();
      };
      ASSERT_EQ(rule.operands.size(), call.operands.size()) << op->name();
      for (size_t i = 0; i < call.operands.size(); ++i) {
        EXPECT_TRUE(fits(rule.operands[i], call.operands[i])) << op->name() << " operand " << i;
      }
      for (size_t i = 0; i < call.results.size(); ++i) {
        EXPECT_TRUE(fits(rule.results[i], call.results[i])) << op->name() << " result " << i;
      }
    }
  }
}

TEST(Sharding, ReplicatedOperandsGiveReplicatedResults) {
  for (const OpDef* op : all_ops()) {
    for (const Call& call : parse_samples(*op)) {
      for (const Placement& placement : result_placements(call)) {
        EXPECT_TRUE(placement.empty()) << op->name();
      }
    }
  }
}

TEST(Sharding, ElementwiseKeepsTheSharding) {
  EXPECT_EQ(placed(kAdd, {"f32[4,6] @S(1:dp)", "f32[4,6] @S(1:dp)"}), Texts{"f32[4,6] @S(1:dp)"});
  EXPECT_EQ(placed(kCast, {"f32[2048] @F(dp)"}, "dtype=bf16"), Texts{"bf16[2048] @F(dp)"});
  EXPECT_EQ(placed(kGelu, {"f32[4,6] @S(0:r) @S(0:s)"}), Texts{"f32[4,6] @S(0:r) @S(0:s)"});
  expect_refusal("add: dim 0 of b is not sharded over dp, but that of other operands is", kAdd,
                 {"f32[4] @S(0:dp)", "f32[4]"});
  expect_refusal("add: dim 1 of b is sharded over dp, which shards other operands differently",
                 kAdd, {"f32[4,4] @S(0:dp)", "f32[4,4] @S(1:dp)"});
  expect_refusal("gelu: x has no dim 3 to shard over dp", kGelu, {"f32[4] @S(3:dp)"});
}

TEST(Sharding, DropoutIsShardedAlongSamplesAndTheNextDim) {
  const std::string_view attrs = "rate=0.1, stream=1";
  EXPECT_EQ(placed(kDropout, {"f32[4,6] @S(0:dp)", "i32[4]"}, attrs), Texts{"f32[4,6] @S(0:dp)"});
  EXPECT_EQ(placed(kDropout, {"f32[4,6,2] @S(0:dp) @S(1:tp)", "i32[6]"}, attrs),
            Texts{"f32[4,6,2] @S(0:dp) @S(1:tp)"});
  expect_refusal("dropout: dim 2 of x is sharded over tp, expected it unsharded", kDropout,
                 {"f32[4,6,2] @S(2:tp)", "i32[6]"}, attrs);
  expect_refusal("dropout: rng is i32[5], expected i32[4], i32[6] or i32[8]", kDropout,
                 {"f32[4,6]", "i32[5]"}, attrs);
  expect_refusal("dropout: x is flat over dp, expected a tensor", kDropout,
                 {"f32[1024] @F(dp)", "i32[4]"}, attrs);
}

TEST(Sharding, MatmulSumsOverTheContractedDim) {
  EXPECT_EQ(placed(kMatmul, {"f32[4,8,6] @S(0:r) @S(0:s)", "f32[6,5]"}),
            Texts{"f32[4,8,5] @S(0:r) @S(0:s)"});
  EXPECT_EQ(placed(kMatmul, {"f32[4,6] @S(1:tp)", "f32[5,6] @S(1:tp)"}, "tb=true"),
            Texts{"f32[4,5] @P(tp)"});
  EXPECT_EQ(placed(kMatmul, {"f32[4,6] @S(0:dp)", "f32[6,8] @S(1:tp)", "f32[8] @S(0:tp)"}),
            Texts{"f32[4,8] @S(0:dp) @S(1:tp)"});
  EXPECT_EQ(placed(kMatmul, {"f32[4,6] @S(0:dp)", "f32[4,8] @S(0:dp)"}, "ta=true"),
            Texts{"f32[6,8] @P(dp)"});
  EXPECT_EQ(placed(kSumRows, {"f32[4,2,6] @S(1:dp)"}), Texts{"f32[6] @P(dp)"});
  expect_refusal("matmul: dim 1 of a is sharded over tp, expected it unsharded", kMatmul,
                 {"f32[4,6] @S(1:tp)", "f32[6,8] @S(0:tp)", "f32[8]"});
  // It is linear in one operand while the other is full, unless it adds a bias.
  EXPECT_EQ(placed(kMatmul, {"f32[4,6] @P(dp)", "f32[6,8]"}), Texts{"f32[4,8] @P(dp)"});
  expect_refusal("matmul: both operands are placed over dp, but one of them is a partial sum",
                 kMatmul, {"f32[4,6] @P(dp)", "f32[6,8] @S(1:dp)"});
  expect_refusal("matmul: a is a partial sum over dp, expected the full value; reduce it first",
                 kMatmul, {"f32[4,6] @P(dp)", "f32[6,8]", "f32[8]"});
}

TEST(Sharding, NormsDoNotShardRows) {
  EXPECT_EQ(placed(kRmsNorm, {"f32[4,6] @S(0:dp)", "f32[6]"}),
            (Texts{"f32[4,6] @S(0:dp)", "f32[4] @S(0:dp)"}));
  EXPECT_EQ(
      placed(kRmsNormGrad, {"f32[4,6] @S(0:dp)", "f32[4,6] @S(0:dp)", "f32[6]", "f32[4] @S(0:dp)"}),
      (Texts{"f32[4,6] @S(0:dp)", "f32[6] @P(dp)"}));
  expect_refusal("layer_norm: dim 1 of x is sharded over tp, expected it unsharded", kLayerNorm,
                 {"f32[4,6] @S(1:tp)", "f32[6]"});
}

TEST(Sharding, AttentionIsShardedAlongTheBatch) {
  const std::string_view attrs = "heads=1, kv_heads=1";
  EXPECT_EQ(placed(kAttention, {"f32[4,2,6] @S(0:dp)"}, attrs),
            (Texts{"f32[4,2,2] @S(0:dp)", "f32[4,1,2] @S(0:dp)"}));
  expect_refusal("attention: dim 1 of qkv is sharded over cp, expected it unsharded", kAttention,
                 {"f32[4,2,6] @S(1:cp)"}, attrs);
  EXPECT_EQ(placed(kRope, {"f32[4,2,6] @P(dp)"}, "heads=1, head_dim=6"),
            Texts{"f32[4,2,6] @P(dp)"});
}

TEST(Sharding, AttentionIsShardedAlongTheHeadsAlsoWithDropout) {
  EXPECT_EQ(placed(kAttention, {"f32[4,3,12] @S(2:tp)", "i32[6]"},
                   "heads=2, kv_heads=2, dropout=0.1, stream=1"),
            (Texts{"f32[4,3,4] @S(2:tp)", "f32[4,2,3] @S(1:tp)"}));
}

TEST(Sharding, LossAndGradientsOfTablesArePartial) {
  EXPECT_EQ(placed(kEmbedding, {"i32[4,3] @S(0:dp)", "f32[7,5]"}), Texts{"f32[4,3,5] @S(0:dp)"});
  EXPECT_EQ(placed(kEmbeddingGrad, {"i32[4,3] @S(0:dp)", "f32[4,3,5] @S(0:dp)"}, "rows=7"),
            Texts{"f32[7,5] @P(dp)"});
  EXPECT_EQ(placed(kAddPositionsGrad, {"f32[4,3,5] @S(0:dp)"}, "rows=3"), Texts{"f32[3,5] @P(dp)"});
  EXPECT_EQ(placed(kCrossEntropy, {"f32[4,7] @S(0:dp)", "i32[4] @S(0:dp)", "f32[]"}),
            (Texts{"f32[] @P(dp)", "f32[4] @S(0:dp)"}));
  expect_refusal("cross_entropy: dim 1 of logits is sharded over tp, expected it unsharded",
                 kCrossEntropy, {"f32[4,7] @S(1:tp)", "i32[4]", "f32[]"});
}

TEST(Sharding, ShardsOfTheVocabulary) {
  EXPECT_EQ(placed(kEmbedding, {"i32[4,3]", "f32[8,5] @S(0:tp)", "i32[]"}),
            Texts{"f32[4,3,5] @P(tp)"});
  const std::string logits = "f32[4,3,8] @S(0:dp) @S(2:tp)";
  const std::string rows = "i32[4,3] @S(0:dp)";
  EXPECT_EQ(placed(kCrossEntropyStats, {logits, rows, "i32[]"}, "classes=8, shards=2"),
            Texts{"f32[2,4,3,3] @S(1:dp) @S(0:tp)"});
  EXPECT_EQ(placed(kCrossEntropyCombine, {"f32[2,4,3,3] @S(1:dp)", rows, "f32[]"}),
            (Texts{"f32[] @P(dp)", "f32[4,3] @S(0:dp)"}));
  EXPECT_EQ(placed(kCrossEntropyGrad,
                   {"f32[]", logits, rows, "f32[4,3] @S(0:dp)", "f32[]", "i32[]"}, "classes=8"),
            Texts{logits});
  expect_refusal("cross_entropy_combine: dim 0 of stats is sharded over tp, expected it unsharded",
                 kCrossEntropyCombine, {"f32[2,4,3] @S(0:tp)", "i32[4]", "f32[]"});
}

TEST(Sharding, PartialSumsPassThroughLinearOpsTogether) {
  EXPECT_EQ(placed(kAdd, {"f32[4] @P(dp)", "f32[4] @P(dp)"}), Texts{"f32[4] @P(dp)"});
  EXPECT_EQ(placed(kAccumulate, {"f32[4] @P(dp)", "f32[4] @P(dp)", "i32[]"}),
            Texts{"f32[4] @P(dp)"});
  expect_refusal("add: b is not a partial sum over dp, but other operands are", kAdd,
                 {"f32[4] @P(dp)", "f32[4]"});
  expect_refusal("gelu: x is a partial sum over dp, expected the full value; reduce it first",
                 kGelu, {"f32[4] @P(dp)"});
}

TEST(Sharding, TheUpdateOfFlatTensors) {
  const std::string flat = "f32[2048] @F(dp)";
  EXPECT_EQ(placed(kAdamw, {flat, flat, flat, flat, "f32[]", "f32[]", "i32[]", "i32[]"}),
            (Texts{flat, flat, flat}));
  EXPECT_EQ(placed(kSquareSum, {flat, "f32[1024] @F(dp)"}), Texts{"i64[12] @P(dp)"});
  expect_refusal("square_sum: g 1 is not sharded over dp, but other operands are", kSquareSum,
                 {flat, "f32[5]"});
  expect_refusal("norm: acc is a partial sum over dp, expected the full value; reduce it first",
                 kNorm, {"i64[12] @P(dp)"});
}

}  // namespace
}  // namespace weft
