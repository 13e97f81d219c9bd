// Collectives: text round trips, placements computed by infer, and errors.
#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/call_text.h"
#include "graph/ops/ops.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "support/user_error.h"

namespace weft {
namespace {

std::vector<TensorType> types_of(const std::vector<std::string>& texts) {
  std::vector<TensorType> types;
  for (const std::string& text : texts) types.push_back(parse_type(text));
  return types;
}

// The result types of a call, as text.
std::vector<std::string> infer(const OpDef& op, const std::vector<std::string>& operands,
                               Attrs attrs) {
  const Call call{
      .op = &op, .operands = types_of(operands), .results = {}, .attrs = std::move(attrs)};
  std::vector<std::string> texts;
  for (const TensorType& type : op.infer(call)) texts.push_back(to_string(type));
  return texts;
}

using Texts = std::vector<std::string>;
const Attrs kShard = {std::string("dp_shard")};
const Attrs kScatter = parse_call_attrs(kReduceScatter, "axis=\"dp_shard\"");

Attrs gather(const Texts& types, const std::string& axis = "dp_shard") {
  return parse_call_attrs(kAllGather, cat("axis=\"", axis, "\", types=", to_string(Attr(types))));
}

Attrs gather_dim(const std::string& axis, int64_t dim) {
  return parse_call_attrs(kAllGather, cat("axis=\"", axis, "\", dim=", dim));
}

Attrs scatter_dim(const std::string& axis, int64_t dim, const std::string& out = "") {
  return parse_call_attrs(kReduceScatter, cat("axis=\"", axis, "\", out=\"", out, "\", dim=", dim));
}

void expect_refusal(const std::string& message, const OpDef& op, const Texts& operands,
                    const Attrs& attrs) {
  expect_user_error(ExitCode::Config, message, [&] { infer(op, operands, attrs); });
}

TEST(Collective, TextRoundTrips) {
  const std::string text = R"text(graph step(mesh dp_replicate=2, dp_shard=4) {
  %b = bucket ["layers.0.w","layers.0.b"] : f32[7168] @F(dp_shard)
  %w, %w.b = all_gather(%b; axis="dp_shard", types=["bf16[6,1000]","bf16[7]"]) : bf16[6,1000], bf16[7]
  %f, %f.b = all_gather_start(%b; axis="dp_shard", types=["f32[6,1000]","f32[7]"]) : future<f32[6,1000]>, future<f32[7]>
  %g, %g.b = wait(%f, %f.b) : f32[6,1000], f32[7]
  %d = input "d" : f32[6,1000] @P(dp_replicate) @P(dp_shard)
  %d2 = input "d2" : f32[7] @P(dp_replicate) @P(dp_shard)
  %s = reduce_scatter(%d, %d2; axis="dp_shard") : f32[7168] @P(dp_replicate) @F(dp_shard)
  %a = all_reduce_start(%s; axis="dp_replicate") : future<f32[7168] @F(dp_shard)>
  %r = wait(%a) : f32[7168] @F(dp_shard)
  return w=%w, w.b=%w.b, g=%g, g.b=%g.b, r=%r
}
)text";
  const Graph graph = parse_graph(text);
  verify(graph);
  EXPECT_EQ(print_graph(graph), text);
}

TEST(Collective, AllGatherDropsTheFlatPlacement) {
  EXPECT_EQ(infer(kAllGather, {"f32[2048] @P(dp_replicate) @F(dp_shard)"},
                  gather({"bf16[3,5]", "f32[]"})),
            (Texts{"bf16[3,5] @P(dp_replicate)", "f32[] @P(dp_replicate)"}));
  EXPECT_EQ(infer(kAllGatherStart, {"f32[1024] @F(dp_shard)"}, gather({"f32[9]"})),
            (Texts{"future<f32[9]>"}));
  expect_refusal("all_gather: x is f32[1024], expected @F(dp_shard)", kAllGather, {"f32[1024]"},
                 gather({"f32[9]"}));
  expect_refusal("all_gather: x is f32[1024] @F(tp), expected @F(dp_shard)", kAllGather,
                 {"f32[1024] @F(tp)"}, gather({"f32[9]"}));
  expect_refusal(
      "all_gather: x is f32[1024] @F(dp_shard), expected [2048], the flat size of its members",
      kAllGather, {"f32[1024] @F(dp_shard)"}, gather({"f32[9]", "f32[1]"}));
  expect_refusal("all_gather: found 2 tensors to overwrite, expected none or 1", kAllGather,
                 {"f32[1024] @F(dp_shard)", "f32[9]", "f32[9]"}, gather({"f32[9]"}));
  expect_refusal("all_gather: into is f32[9], expected bf16[9]", kAllGather,
                 {"f32[1024] @F(dp_shard)", "f32[9]"}, gather({"bf16[9]"}));
  expect_refusal("all_gather: types has \"i64[9]\", expected a dtype that f32 converts to",
                 kAllGather, {"f32[1024] @F(dp_shard)"}, gather({"i64[9]"}));
  expect_refusal("all_gather: types has \"f32[9] @P(tp)\", expected a dtype and a shape",
                 kAllGather, {"f32[1024] @F(dp_shard)"}, gather({"f32[9] @P(tp)"}));
}

TEST(Collective, ReduceScatterTurnsPartialIntoFlat) {
  EXPECT_EQ(
      infer(kReduceScatter,
            {"f32[3,700] @P(dp_replicate) @P(dp_shard)", "f32[] @P(dp_replicate) @P(dp_shard)"},
            kScatter),
      (Texts{"f32[4096] @P(dp_replicate) @F(dp_shard)"}));
  expect_refusal("reduce_scatter: g is f32[3], expected @P(dp_shard)", kReduceScatter, {"f32[3]"},
                 kScatter);
  expect_refusal(
      "reduce_scatter: g is f64[3] @P(dp_shard), expected f32, bf16 or f16, one dtype for all "
      "operands",
      kReduceScatter, {"f64[3] @P(dp_shard)"}, kScatter);
  expect_refusal(
      "reduce_scatter: g is f32[3] @P(dp_shard), expected f32, bf16 or f16, one dtype for all "
      "operands",
      kReduceScatter, {"bf16[3] @P(dp_shard)", "f32[3] @P(dp_shard)"}, kScatter);
  expect_refusal(
      "reduce_scatter: g is f32[4] @P(dp_replicate) @P(dp_shard), expected the placement of "
      "f32[3] @P(dp_shard)",
      kReduceScatter, {"f32[3] @P(dp_shard)", "f32[4] @P(dp_replicate) @P(dp_shard)"}, kScatter);
  expect_refusal(
      "reduce_scatter: shards is 1, expected the number of shards of f32[4] @S(0:tp) @P(dp_shard)",
      kReduceScatter, {"f32[4] @S(0:tp) @P(dp_shard)"}, kScatter);
  expect_refusal("reduce_scatter: no operands, expected one or more", kReduceScatter, {}, kScatter);
}

// A bucket of weights that are sharded over tp along different dims.
TEST(Collective, FlatTensorsOfShardsKnowTheShardsOfTheirMembers) {
  const std::vector<std::string> types = {"f32[6,64] @S(0:tp)", "f32[64,51] @S(1:tp)"};
  EXPECT_EQ(infer(kAllGather, {"f32[6144] @F(dp_shard) @S(0:tp)"},
                  make_attrs(kAllGather, {{"axis", std::string("dp_shard")},
                                          {"types", types},
                                          {"shards", int64_t{2}}})),
            (Texts{types[0], types[1]}));
  EXPECT_EQ(
      infer(
          kReduceScatter, {"f32[6,64] @P(dp_shard) @S(0:tp)", "f32[64,51] @P(dp_shard) @S(1:tp)"},
          make_attrs(kReduceScatter, {{"axis", std::string("dp_shard")}, {"shards", int64_t{2}}})),
      (Texts{"f32[6144] @F(dp_shard) @S(0:tp)"}));
}

TEST(Collective, ReduceScatterKeepsTheDtypeOrGivesTheOneAskedFor) {
  EXPECT_EQ(infer(kReduceScatter, {"bf16[3] @P(dp_shard)"}, kScatter),
            (Texts{"bf16[1024] @F(dp_shard)"}));
  EXPECT_EQ(infer(kReduceScatter, {"bf16[3] @P(dp_shard)"}, scatter_dim("dp_shard", -1, "f32")),
            (Texts{"f32[1024] @F(dp_shard)"}));
}

TEST(Collective, AllGatherAlongADimDropsItsShards) {
  EXPECT_EQ(infer(kAllGather, {"bf16[4,6] @S(0:dp) @P(cp) @S(1:tp)"}, gather_dim("tp", 1)),
            (Texts{"bf16[4,6] @S(0:dp) @P(cp)"}));
  EXPECT_EQ(infer(kAllGather, {"i32[4] @S(0:dp) @S(0:tp)"}, gather_dim("tp", 0)),
            (Texts{"i32[4] @S(0:dp)"}));
  EXPECT_EQ(infer(kAllGatherStart, {"f32[4] @S(0:dp) @S(0:tp)"}, gather_dim("dp+tp", 0)),
            (Texts{"future<f32[4]>"}));
  expect_refusal("all_gather: x is f32[4,6] @S(0:tp), expected @S(1:tp)", kAllGather,
                 {"f32[4,6] @S(0:tp)"}, gather_dim("tp", 1));
  expect_refusal("all_gather: x is f32[4] @S(0:tp), expected @S(0:dp) @S(0:tp)", kAllGather,
                 {"f32[4] @S(0:tp)"}, gather_dim("dp+tp", 0));
  expect_refusal(
      "all_gather: x is f32[4] @S(0:dp) @S(0:tp), expected no shards of dim 0 after those over dp",
      kAllGather, {"f32[4] @S(0:dp) @S(0:tp)"}, gather_dim("dp", 0));
  expect_refusal("all_gather: dim is 1, expected one of f32[4] @S(0:tp)", kAllGather,
                 {"f32[4] @S(0:tp)"}, gather_dim("tp", 1));
  expect_refusal("all_gather: found 2 operands, expected one with dim", kAllGather,
                 {"f32[4] @S(0:tp)", "f32[4]"}, gather_dim("tp", 0));
  expect_refusal("all_gather: types is given, expected none with dim", kAllGather,
                 {"f32[4] @S(0:tp)"},
                 parse_call_attrs(kAllGather, "axis=\"tp\", types=[\"f32[4]\"], dim=0"));
}

TEST(Collective, ReduceScatterAlongADimTurnsPartialIntoShards) {
  EXPECT_EQ(infer(kReduceScatter, {"bf16[4,6] @S(0:dp) @P(cp) @P(tp)"}, scatter_dim("cp", 1)),
            (Texts{"bf16[4,6] @S(0:dp) @S(1:cp) @P(tp)"}));
  EXPECT_EQ(infer(kReduceScatter, {"bf16[4,6] @P(cp) @P(tp)"}, scatter_dim("cp+tp", 0, "f32")),
            (Texts{"f32[4,6] @S(0:cp) @S(0:tp)"}));
  expect_refusal("reduce_scatter: g is f32[4] @P(tp), expected @P(cp) @P(tp)", kReduceScatter,
                 {"f32[4] @P(tp)"}, scatter_dim("cp+tp", 0));
  expect_refusal(
      "reduce_scatter: g is f32[4] @P(cp) @S(0:tp), expected no shards of dim 0 after those over "
      "cp",
      kReduceScatter, {"f32[4] @P(cp) @S(0:tp)"}, scatter_dim("cp", 0));
  expect_refusal("reduce_scatter: found 2 operands, expected one with dim", kReduceScatter,
                 {"f32[4] @P(tp)", "f32[4] @P(tp)"}, scatter_dim("tp", 0));
  expect_refusal("reduce_scatter: g is f64[4] @P(tp), expected f32, bf16 or f16", kReduceScatter,
                 {"f64[4] @P(tp)"}, scatter_dim("tp", 0));
}

TEST(Collective, FlatCollectivesOverAJointAxis) {
  EXPECT_EQ(infer(kReduceScatter, {"f32[3] @P(dp) @P(tp)"}, scatter_dim("dp+tp", -1)),
            (Texts{"f32[1024] @F(dp) @F(tp)"}));
  for (const char* x : {"f32[1024] @F(dp) @F(tp)", "f32[1024] @F(dp+tp)"}) {
    EXPECT_EQ(infer(kAllGather, {x}, gather({"f32[3]"}, "dp+tp")), (Texts{"f32[3]"}));
  }
  EXPECT_EQ(infer(kAllReduce, {"f32[3] @P(dp) @P(tp)"}, {std::string("dp+tp")}), (Texts{"f32[3]"}));
}

TEST(Collective, TakeShardAddsShards) {
  const auto taken = [](const std::string& x, const std::string& axis, int64_t dim) {
    return infer(kTakeShard, {x, "i32[]"}, {axis, dim});
  };
  EXPECT_EQ(taken("f32[4,6] @S(0:dp)", "tp", 1), (Texts{"f32[4,6] @S(0:dp) @S(1:tp)"}));
  EXPECT_EQ(taken("i32[4] @P(dp)", "cp+tp", 0), (Texts{"i32[4] @P(dp) @S(0:cp) @S(0:tp)"}));
  expect_refusal("take_shard: x is f32[4] @P(tp), expected no placement over tp", kTakeShard,
                 {"f32[4] @P(tp)", "i32[]"}, {std::string("tp"), int64_t{0}});
  expect_refusal("take_shard: coordinate is f32[], expected i32[]", kTakeShard, {"f32[4]", "f32[]"},
                 {std::string("tp"), int64_t{0}});
  expect_refusal("take_shard: dim is 1, expected one of f32[4]", kTakeShard, {"f32[4]", "i32[]"},
                 {std::string("tp"), int64_t{1}});
}

Attrs move_dims(const std::string& axis, int64_t from, int64_t to, bool bounded = false) {
  return {axis, from, to, bounded};
}

TEST(Collective, AllToAllMovesShardsToAnotherDim) {
  EXPECT_EQ(infer(kAllToAll, {"bf16[4,6] @S(0:dp) @S(1:cp) @P(tp)"}, move_dims("cp", 1, 0)),
            (Texts{"bf16[4,6] @S(0:dp) @S(0:cp) @P(tp)"}));
  EXPECT_EQ(infer(kAllToAllStart, {"i32[4,6] @S(0:cp) @S(0:tp)"}, move_dims("cp+tp", 0, 1)),
            (Texts{"future<i32[4,6] @S(1:cp) @S(1:tp)>"}));
  expect_refusal("all_to_all: x is f32[4,6] @S(0:tp), expected @S(1:tp)", kAllToAll,
                 {"f32[4,6] @S(0:tp)"}, move_dims("tp", 1, 0));
  expect_refusal("all_to_all: from and to are both 0, expected two dims", kAllToAll,
                 {"f32[4,6] @S(0:tp)"}, move_dims("tp", 0, 0));
  expect_refusal("all_to_all: to is 2, expected one of f32[4,6] @S(0:tp)", kAllToAll,
                 {"f32[4,6] @S(0:tp)"}, move_dims("tp", 0, 2));
  expect_refusal(
      "all_to_all: x is f32[4,6] @S(0:cp) @S(1:tp), expected no shards of dim 1 after those over "
      "cp",
      kAllToAll, {"f32[4,6] @S(0:cp) @S(1:tp)"}, move_dims("cp", 0, 1));
}

TEST(Collective, AllToAllMovesSeveralTensorsTogether) {
  EXPECT_EQ(infer(kAllToAll, {"f32[4,2,32,8] @S(0:edp) @S(0:ep)", "i32[4,2,5] @S(0:edp) @S(0:ep)"},
                  move_dims("ep", 0, 1)),
            (Texts{"f32[4,2,32,8] @S(0:edp) @S(1:ep)", "i32[4,2,5] @S(0:edp) @S(1:ep)"}));
  expect_refusal("all_to_all: x is i32[4,2,5], expected @S(0:ep)", kAllToAll,
                 {"f32[4,2,32,8] @S(0:ep)", "i32[4,2,5]"}, move_dims("ep", 0, 1));
}

TEST(Collective, ABoundedAllToAllDoesNotMoveTheOffsets) {
  EXPECT_EQ(infer(kAllToAll, {"f32[4,2,32,8] @S(0:ep)", "i32[4,2,5] @S(0:ep)"},
                  move_dims("ep", 0, 1, true)),
            (Texts{"f32[4,2,32,8] @S(1:ep)"}));
  expect_refusal(
      "all_to_all: the last x is i32[4,3,5] @S(0:ep), expected the offsets of rows f32[4,2,32,8] "
      "@S(0:ep)",
      kAllToAll, {"f32[4,2,32,8] @S(0:ep)", "i32[4,3,5] @S(0:ep)"}, move_dims("ep", 0, 1, true));
}

TEST(Collective, ShiftKeepsThePlacement) {
  const Attrs over_cp = parse_call_attrs(kShift, "axis=\"cp\"");
  EXPECT_EQ(infer(kShift, {"bf16[4,6] @S(0:dp) @S(1:cp)"}, over_cp),
            (Texts{"bf16[4,6] @S(0:dp) @S(1:cp)"}));
  EXPECT_EQ(infer(kShiftStart, {"f32[4,6] @S(1:cp)"}, over_cp),
            (Texts{"future<f32[4,6] @S(1:cp)>"}));
  expect_refusal("shift: x is f32[4] @S(0:tp), expected shards over cp", kShift,
                 {"f32[4] @S(0:tp)"}, over_cp);
  expect_refusal("shift: x is f32[4] @P(cp), expected shards over cp", kShift, {"f32[4] @P(cp)"},
                 over_cp);
}

TEST(Collective, TextOfCollectivesAlongADimRoundTrips) {
  const std::string text = R"text(graph step(mesh cp=2, tp=4) {
  %x = input "x" : bf16[6,8] @S(0:cp) @S(1:tp)
  %c = input "c" : i32[]
  %f = all_gather(%x; axis="tp", dim=1) : bf16[6,8] @S(0:cp)
  %s = take_shard(%f, %c; axis="tp", dim=0) : bf16[6,8] @S(0:cp) @S(0:tp)
  %g = all_gather_start(%s; axis="cp+tp", dim=0) : future<bf16[6,8]>
  %w = wait(%g) : bf16[6,8]
  %p = input "p" : f32[6,8] @P(cp) @P(tp)
  %r = reduce_scatter(%p; axis="cp+tp", out="bf16", dim=0) : bf16[6,8] @S(0:cp) @S(0:tp)
  %m = all_to_all(%r; axis="tp", from=0, to=1) : bf16[6,8] @S(0:cp) @S(1:tp)
  %n = shift_start(%m; axis="cp", steps=2) : future<bf16[6,8] @S(0:cp) @S(1:tp)>
  %o = wait(%n) : bf16[6,8] @S(0:cp) @S(1:tp)
  return w=%w, r=%r, o=%o
}
)text";
  const Graph graph = parse_graph(text);
  verify(graph);
  EXPECT_EQ(print_graph(graph), text);
}

TEST(Collective, AllReduceRemovesPartial) {
  EXPECT_EQ(infer(kAllReduce, {"f32[2048] @F(tp) @P(dp_shard)", "f32[] @P(dp_shard)"}, kShard),
            (Texts{"f32[2048] @F(tp)", "f32[]"}));
  EXPECT_EQ(infer(kAllReduce, {"i64[12] @P(dp_shard)"}, kShard), (Texts{"i64[12]"}));
  expect_refusal("all_reduce: x is f32[2] @F(dp_shard), expected @P(dp_shard)", kAllReduce,
                 {"f32[2] @F(dp_shard)"}, kShard);
  EXPECT_EQ(infer(kAllReduce, {"bf16[2] @P(dp_shard)"}, kShard), (Texts{"bf16[2]"}));
  expect_refusal(
      "all_reduce: x is f64[2] @P(dp_shard), expected f32, bf16, f16 or i64, one dtype for all "
      "operands",
      kAllReduce, {"f64[2] @P(dp_shard)"}, kShard);
}

TEST(Collective, OnlyWaitTakesFutures) {
  EXPECT_EQ(infer(kWait, {"future<f32[2] @F(dp)>"}, {}), (Texts{"f32[2] @F(dp)"}));
  expect_refusal("wait: f is f32[2], expected a future", kWait, {"f32[2]"}, {});
  expect_refusal(
      "all_reduce: x is future<f32[2] @P(dp_shard)>, expected a tensor; wait for it first",
      kAllReduce, {"future<f32[2] @P(dp_shard)>"}, kShard);
}

TEST(Collective, VerifyFindsAFutureThatIsReadUnwaited) {
  Graph graph("g");
  Value* x = graph.insert_source(nullptr, kInput, "x", parse_type("f32[2] @P(dp)"), {.name = "x"})
                 ->result();
  Builder builder(graph);
  Value* f = builder.add(kAllReduceStart, {x}, {{"axis", std::string("dp")}}, "f")->result();
  builder.add(kGelu, {f}, {}, "y");
  EXPECT_THROW(verify(graph), InternalError);
}

TEST(Collective, TextMustGiveThePlacementThatInferGives) {
  expect_user_error(ExitCode::InputFile,
                    "graph:3: %y is f32[2] @P(dp) in the text, but all_reduce gives f32[2]", [] {
                      parse_graph(
                          "graph g {\n  %x = input \"x\" : f32[2] @P(dp)\n"
                          "  %y = all_reduce(%x; axis=\"dp\") : f32[2] @P(dp)\n  return\n}\n");
                    });
}

TEST(Collective, VariadicResultsAreCounted) {
  Graph graph("g");
  const TensorType type = parse_type("f32[2048] @F(dp)");
  Value* b =
      graph.insert_source(nullptr, kBucket, std::vector<std::string>{"w"}, type, {.name = "b"})
          ->result();
  Builder builder(graph);
  const Node* node = builder.add(
      kAllGather, {b},
      {{"axis", std::string("dp")}, {"types", std::vector<std::string>{"f32[3]", "f32[4]"}}}, "w");
  EXPECT_EQ(node->result(0)->name, "w");
  EXPECT_EQ(node->result(1)->name, "w.1");
  expect_user_error(ExitCode::InputFile, "graph:3: all_gather gives 1 results, found 2 names", [] {
    parse_graph(
        "graph g {\n  %b = bucket [\"w\"] : f32[1024] @F(dp)\n"
        "  %x, %y = all_gather(%b; axis=\"dp\", types=[\"f32[2]\"]) : f32[2], f32[2]\n}\n");
  });
}

}  // namespace
}  // namespace weft
