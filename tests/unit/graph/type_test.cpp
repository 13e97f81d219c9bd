// Types and meshes: text round trips, local shapes, errors.
#include "graph/type.h"

#include <gtest/gtest.h>

#include "support/user_error.h"

namespace weft {
namespace {

std::string error_of(std::string_view text) {
  return user_error_of([&] { parse_type(text); });
}

TEST(Type, PrintsAndParsesToTheSame) {
  for (const char* text : {"f32[]", "bf16[512,256]", "i32[4]", "f64[0,3]", "f16[8] @F(dp)",
                           "f32[8,16] @S(0:dp_shard) @P(tp)", "i64[12] @P(dp)", "future<f32[]>",
                           "future<bf16[4,8] @P(dp)>"}) {
    EXPECT_EQ(to_string(parse_type(text)), text);
  }
}

TEST(Type, RefusesWhatItCannotRead) {
  EXPECT_EQ(error_of("f32"), "type \"f32\" is not of the form f32[2,3]");
  EXPECT_EQ(error_of("f31[2]"),
            "unknown element type \"f31\"; use f64, f32, bf16, f16, i32 or i64");
  EXPECT_EQ(error_of("f32[2,x]"), "shape [2,x] has \"x\", expected a size");
  EXPECT_EQ(error_of("f32[2,-1]"), "shape [2,-1] has \"-1\", expected a size");
  EXPECT_EQ(error_of("f32[4611686018427387904,4]"),
            "shape [4611686018427387904,4] has too many elements to count");
  EXPECT_EQ(error_of("f32[2] dp"), "type \"f32[2] dp\" has \"dp\" after its shape");
  EXPECT_EQ(error_of("f32[2] @S(dp)"), "placement \"@S(dp)\" has no dim; write @S(dim:axis)");
  EXPECT_EQ(error_of("f32[2] @S(0:)"), "placement \"@S(0:)\" names no mesh axis");
  EXPECT_EQ(error_of("future<future<f32[2]>>"),
            "type \"future<future<f32[2]>>\" is a future of a future");
  EXPECT_EQ(error_of("f32[2] @Q(dp)"),
            "placement \"@Q(dp)\" is not @S(dim:axis), @P(axis) or @F(axis)");
  EXPECT_EQ(error_of("f32[2] @P(dp"), "type \"f32[2] @P(dp\" has an unclosed placement");
}

TEST(Type, LocalShapeDividesTheShardedDim) {
  Mesh mesh{{{"dp", 4}, {"tp", 2}}};
  EXPECT_EQ(mesh.ranks(), 8);
  EXPECT_EQ(local_shape(parse_type("f32[8,6] @S(0:dp) @S(1:tp)"), mesh), (Shape{2, 3}));
  EXPECT_EQ(local_shape(parse_type("f32[8,6] @P(dp)"), mesh), (Shape{8, 6}));
  EXPECT_THROW(local_shape(parse_type("f32[6] @S(0:pp)"), mesh), UserError);
}

TEST(Type, LocalShapeIsRoundedUpWhereADimDoesNotDivide) {
  Mesh mesh{{{"dp", 4}, {"tp", 2}}};
  EXPECT_EQ(local_shape(parse_type("f32[6] @S(0:dp)"), mesh), (Shape{2}));
  EXPECT_EQ(local_shape(parse_type("f32[9,3] @S(0:dp) @S(0:tp) @S(1:tp)"), mesh), (Shape{2, 2}));
  EXPECT_EQ(local_shape(parse_type("f32[9] @S(0:dp+tp)"), mesh), (Shape{2}));
}

TEST(Type, AJointAxisCountsItsAxesRowMajor) {
  EXPECT_EQ(joint_axes("dp"), (std::vector<std::string_view>{"dp"}));
  EXPECT_EQ(joint_axes("dp+tp"), (std::vector<std::string_view>{"dp", "tp"}));
  Mesh mesh{{{"dp", 2}, {"cp", 3}, {"tp", 2}}};
  EXPECT_EQ(mesh.axis_size("dp+tp"), 4);
  EXPECT_EQ(mesh.axis_size("dp+cp+tp"), 12);
  EXPECT_EQ(mesh.coordinate(10, "dp+tp"), 2);  // 1, 2, 0
  EXPECT_EQ(mesh.coordinate(10, "cp+tp"), 4);
  EXPECT_EQ(mesh.coordinate(10, "dp+cp+tp"), 10);
  EXPECT_EQ(user_error_of([&] { mesh.axis_size("dp+pp"); }), "the mesh has no axis \"pp\"");
}

// dp_replicate 2 x dp_shard 2 x tp 4: the inner 8 ranks are also edp 4 x ep 2.
TEST(Type, ExpertAxesNumberTheSameRanksASecondTime) {
  const Mesh mesh = parse_mesh("dp_replicate=2, dp_shard=2, tp=4; edp=4, ep=2");
  EXPECT_EQ(mesh.ranks(), 16);
  EXPECT_EQ(mesh.axis_size("edp"), 4);
  EXPECT_EQ(mesh.axis_size("dp_replicate+edp"), 8);
  EXPECT_EQ(mesh.stride("ep"), 1);
  EXPECT_EQ(mesh.stride("edp"), 2);
  EXPECT_EQ(mesh.stride("dp_shard"), 4);
  for (int64_t rank = 0; rank < 16; ++rank) {
    EXPECT_EQ(mesh.coordinate(rank, "edp+ep"), mesh.coordinate(rank, "dp_shard+tp"));
    EXPECT_EQ(mesh.coordinate(rank, "ep"), rank % 2);
    EXPECT_EQ(mesh.coordinate(rank, "edp"), rank / 2 % 4);
    EXPECT_EQ(mesh.coordinate(rank, "dp_replicate+edp+ep"), rank);
  }
  const MeshAxis outer{"dp_replicate", 2}, edp{"edp", 4}, ep{"ep", 2};
  EXPECT_EQ(mesh.numbering_of("tp"), mesh.axes);
  EXPECT_EQ(mesh.numbering_of("dp_replicate"), mesh.axes);
  EXPECT_EQ(mesh.numbering_of("ep"), (std::vector<MeshAxis>{outer, edp, ep}));
  EXPECT_EQ(numbering_of(parse_type("f32[8] @P(dp_replicate) @S(0:ep)").placement, mesh),
            mesh.numbering_of("dp_replicate+ep"));
  EXPECT_EQ(local_shape(parse_type("f32[16,8] @S(0:dp_replicate) @S(0:edp) @S(1:ep)"), mesh),
            (Shape{2, 4}));
}

TEST(Type, AMeshPrintsAndParses) {
  for (const char* text : {"dp_shard=4", "dp_replicate=2, dp_shard=4; edp=2, ep=2", "tp=4; ep=4"}) {
    EXPECT_EQ(to_string(parse_mesh(text)), text);
  }
  EXPECT_EQ(user_error_of([] { parse_mesh("dp_shard"); }),
            "mesh axis \"dp_shard\" is not of the form axis=size");
  EXPECT_EQ(user_error_of([] { parse_mesh("dp_replicate=2, dp_shard=4; ep=8; tp=2"); }),
            "mesh \"dp_replicate=2, dp_shard=4; ep=8; tp=2\" has 3 lists of axes, expected one or "
            "two");
  EXPECT_EQ(user_error_of([] { parse_mesh("dp_replicate=2, dp_shard=4; edp=3, ep=2"); }),
            "mesh \"dp_replicate=2, dp_shard=4; edp=3, ep=2\": the expert axes number 6 ranks, "
            "expected the product of the last axes");
  EXPECT_EQ(user_error_of([] { parse_mesh("ep=4; ep=4"); }),
            "mesh \"ep=4; ep=4\" has two axes \"ep\"");
}

TEST(Type, FlatStorageIsPaddedToFullBlocksPerRank) {
  Mesh mesh{{{"dp", 4}}};
  EXPECT_EQ(local_shape(parse_type("f32[3] @F(dp)"), mesh), (Shape{1024}));
  EXPECT_EQ(local_shape(parse_type("f32[4096] @F(dp)"), mesh), (Shape{1024}));
  EXPECT_EQ(local_shape(parse_type("f32[4097] @F(dp)"), mesh), (Shape{2048}));
}

TEST(Type, FlatStorageOverSeveralAxesIsPaddedOnce) {
  Mesh mesh{{{"dp", 4}, {"tp", 2}}};
  EXPECT_EQ(local_shape(parse_type("f32[3] @F(dp) @F(tp)"), mesh), (Shape{1024}));
  EXPECT_EQ(local_shape(parse_type("f32[8193] @F(dp) @F(tp)"), mesh), (Shape{2048}));
  EXPECT_EQ(local_shape(parse_type("f32[8193] @F(dp+tp)"), mesh), (Shape{2048}));
  for (const char* text : {"f32[8194,3] @F(dp) @S(0:tp)", "f32[8194,3] @S(0:tp) @F(dp)"}) {
    EXPECT_EQ(local_shape(parse_type(text), mesh), (Shape{4096})) << text;  // 12291 / 4
  }
}

TEST(Type, KnowsFlatStorageAndPartialSums) {
  const TensorType flat = parse_type("f32[4096] @P(dp_replicate) @F(dp_shard)");
  EXPECT_EQ(flat_placement(flat)->axis, "dp_shard");
  EXPECT_TRUE(is_flat(flat));
  EXPECT_TRUE(is_partial(flat));
  const TensorType sharded = parse_type("f32[4,8] @S(0:dp_shard)");
  EXPECT_EQ(flat_placement(sharded), nullptr);
  EXPECT_FALSE(is_flat(sharded));
  EXPECT_FALSE(is_partial(sharded));
}

using Ranges = std::vector<DimRange>;

TEST(ShardRanges, AreContiguousAndMayBePadded) {
  EXPECT_EQ(shard_ranges("tp", 16, 4, 1), (Ranges{{4, 4}}));
  EXPECT_EQ(shard_ranges("tp", 5, 4, 2), (Ranges{{4, 1}}));
  EXPECT_EQ(shard_ranges("tp", 5, 4, 3), (Ranges{{5, 0}}));
}

// The pairs of queries and keys of a causal mask are then as many on every rank.
TEST(ShardRanges, OverCpAreNearTheHeadAndTheTail) {
  EXPECT_EQ(shard_ranges("cp", 16, 2, 0), (Ranges{{0, 4}, {12, 4}}));
  EXPECT_EQ(shard_ranges("cp", 16, 2, 1), (Ranges{{4, 4}, {8, 4}}));
  EXPECT_EQ(shard_ranges("cp", 16, 1, 0), (Ranges{{0, 16}}));
  for (const int64_t shards : {2, 3, 4}) {
    int64_t expected = -1;
    for (int64_t index = 0; index < shards; ++index) {
      int64_t pairs = 0, at = 0;
      const ContextShard shard{8, shards, index};
      for (const DimRange& range : shard_ranges("cp", 8 * shards, shards, index)) {
        for (int64_t row = range.begin; row < range.begin + range.size; ++row) {
          EXPECT_EQ(shard.in_full(at++), row);
          pairs += row + 1;
        }
      }
      if (expected < 0) expected = pairs;
      EXPECT_EQ(pairs, expected) << shards << " shards, number " << index;
    }
  }
}

}  // namespace
}  // namespace weft
