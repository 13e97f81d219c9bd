#include "plan/index_map.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "graph/flat.h"

namespace weft {
namespace {

const std::vector<ParamShape> kParams = {{"a", {40, 64}, {}},
                                         {"b", {700}, {}},
                                         {"c", {24, 50, 3}, {{8, 12, 4}, {20, 30}}},
                                         {"d", {1}, {}}};

// The ranks over which a flat tensor is sharded: along one axis, or several folded into one.
int64_t axis_ranks(const Mesh& mesh, const std::string& axes) {
  int64_t ranks = 1;
  if (axes.empty()) return ranks;
  for (const std::string& axis : split(axes, '+')) ranks *= mesh.axis_size(axis);
  return ranks;
}

// A rank's number among them: the axes are given outermost first.
int64_t axis_index(const Mesh& mesh, const std::string& axes, int64_t rank) {
  int64_t index = 0;
  for (const std::string& axis : split(axes, '+')) {
    index = index * mesh.axis_size(axis) + mesh.coordinate(rank, axis);
  }
  return index;
}

struct Case {
  const char* name;
  Mesh mesh;
  std::string axis;          // of F
  std::string sharded = {};  // the axis of S, along the last dim of every parameter

  // Ranks with the same elements.
  int64_t replicas() const {
    return mesh.ranks() / axis_ranks(mesh, axis) / axis_ranks(mesh, sharded);
  }
};

FlatMember member_of(const ParamShape& param, const Case& test) {
  const int64_t last = std::ssize(param.shape) - 1;
  if (test.sharded.empty()) return {param.name, param.shape, {}};
  return {param.name, param.shape, {{PlacementKind::Sharded, test.sharded, last}}};
}

Shape local_of(const FlatMember& member, const Mesh& mesh) {
  return local_shape({DType::F32, member.shape, member.placement}, mesh);
}

// A plan that stores the parameters in flat buckets of two over an axis, or each on its own.
Plan plan_of(const Case& test) {
  Plan plan;
  plan.mesh = test.mesh;
  if (test.axis.empty()) {
    for (const ParamShape& param : kParams) {
      const FlatMember member = member_of(param, test);
      plan.params.push_back({param.name, {0, DType::F32, local_of(member, test.mesh)}});
      if (!test.sharded.empty()) plan.params.back().members = {member};
    }
    return plan;
  }
  for (size_t i = 0; i < kParams.size(); i += 2) {
    const std::vector<FlatMember> members = {member_of(kParams[i], test),
                                             member_of(kParams[i + 1], test)};
    const std::vector<Shape> shapes = {local_of(members[0], test.mesh),
                                       local_of(members[1], test.mesh)};
    const int64_t shards = axis_ranks(test.mesh, test.axis);
    const int64_t shard = flat_padded((flat_size(shapes) + shards - 1) / shards);
    plan.params.push_back({kParams[i].name + "+1", {0, DType::F32, {shard}}, test.axis, members});
  }
  return plan;
}

const Case kCases[] = {
    {"one", {}, ""},
    {"one_flat", {{{"dp_shard", 1}}}, "dp_shard"},
    {"ddp2", {{{"dp_replicate", 2}}}, ""},
    {"ddp3", {{{"dp_replicate", 3}}}, ""},
    {"fsdp2", {{{"dp_shard", 2}}}, "dp_shard"},
    {"fsdp3", {{{"dp_shard", 3}}}, "dp_shard"},
    {"fsdp8", {{{"dp_shard", 8}}}, "dp_shard"},
    {"hsdp2x2", {{{"dp_replicate", 2}, {"dp_shard", 2}}}, "dp_shard"},
    {"hsdp3x4", {{{"dp_replicate", 3}, {"dp_shard", 4}}}, "dp_shard"},
    {"folded2x2", {{{"dp_shard", 2}, {"tp", 2}}}, "dp_shard+tp"},
    {"folded_hsdp", {{{"dp_replicate", 2}, {"dp_shard", 3}, {"cp", 2}, {"tp", 2}}}, "dp_shard+tp"},
    {"tp2", {{{"tp", 2}}}, "", "tp"},
    {"ddp2_tp3", {{{"dp_replicate", 2}, {"tp", 3}}}, "", "tp"},
    {"fsdp2_tp2", {{{"dp_shard", 2}, {"tp", 2}}}, "dp_shard", "tp"},
    {"hsdp_cp2_tp4",
     {{{"dp_replicate", 2}, {"dp_shard", 2}, {"cp", 2}, {"tp", 4}}},
     "dp_shard+cp",
     "tp"},
    {"ep2_of_4", parse_mesh("dp_shard=4; edp=2, ep=2"), "edp", "ep"},
    {"ep4_of_4", parse_mesh("dp_shard=2, tp=2; ep=4"), "", "ep"},
    {"hsdp_ep2", parse_mesh("dp_replicate=2, dp_shard=2, tp=2; edp=2, ep=2"), "edp", "ep"},
    {"dense_beside_ep2", parse_mesh("dp_shard=2, tp=2; edp=2, ep=2"), "dp_shard", "tp"},
    {"full_copies_with_ep2", parse_mesh("dp_replicate=2, dp_shard=4; edp=2, ep=2"), "", "ep"},
};

class IndexMapTest : public testing::TestWithParam<Case> {};

TEST_P(IndexMapTest, EveryElementHasOneWriterAndAllItsReplicas) {
  const Mesh& mesh = GetParam().mesh;
  const Plan plan = plan_of(GetParam());
  const int64_t replicas = GetParam().replicas();
  for (size_t param = 0; param < kParams.size(); ++param) {
    std::vector<int64_t> held(static_cast<size_t>(count(kParams[param].shape)));
    std::vector<int64_t> written = held;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      const IndexMap map(plan, kParams, rank);
      std::set<int64_t> places;
      for (const ElementRun& run : map.held(param)) {
        for (int64_t i = 0; i < run.elements; ++i) {
          ++held.at(static_cast<size_t>(run.first + i));
          EXPECT_TRUE(places.insert(run.at + i).second);
          EXPECT_LT(run.at + i, count(map.binding(param).tensor.shape));
        }
      }
      for (const ElementRun& run : map.written(param)) {
        for (int64_t i = 0; i < run.elements; ++i) {
          ++written.at(static_cast<size_t>(run.first + i));
          EXPECT_TRUE(places.contains(run.at + i));
        }
      }
    }
    EXPECT_EQ(held, std::vector<int64_t>(held.size(), replicas)) << kParams[param].name;
    EXPECT_EQ(written, std::vector<int64_t>(held.size(), 1)) << kParams[param].name;
  }
}

TEST_P(IndexMapTest, APlaceInTheFlatIsThatOfItsMembers) {
  const auto& [name, mesh, axis, sharded] = GetParam();
  if (axis.empty() || !sharded.empty()) return;
  const Plan plan = plan_of(GetParam());
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const IndexMap map(plan, kParams, rank);
    const int64_t shard = count(map.binding(0).tensor.shape);
    // The second member starts after the first, at the next block.
    const int64_t start = flat_padded(count(kParams[0].shape));
    for (const ElementRun& run : map.held(1)) {
      EXPECT_EQ(axis_index(mesh, axis, rank) * shard + run.at, start + run.first);
    }
  }
}

TEST_P(IndexMapTest, ReplicasShareTheWritingEvenly) {
  const Mesh& mesh = GetParam().mesh;
  const Plan plan = plan_of(GetParam());
  const int64_t replicas = GetParam().replicas();
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const IndexMap map(plan, kParams, rank);
    int64_t held = 0, written = 0;
    for (size_t param = 0; param < kParams.size(); ++param) {
      for (const ElementRun& run : map.held(param)) held += run.elements;
      for (const ElementRun& run : map.written(param)) written += run.elements;
    }
    EXPECT_NEAR(static_cast<double>(written), static_cast<double>(held) / replicas,
                4.0 * kFlatBlock);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, IndexMapTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

// The global index of each place of a local dim, -1 for padding: shard `index` of every part.
std::vector<int64_t> places_of(int64_t size, std::vector<int64_t> parts, int64_t index,
                               int64_t shards) {
  if (parts.empty()) parts = {size};
  std::vector<int64_t> places;
  int64_t begin = 0;
  for (const int64_t part : parts) {
    const int64_t most = (part + shards - 1) / shards;
    for (int64_t i = index * most; i < (index + 1) * most; ++i) {
      places.push_back(i < part ? begin + i : -1);
    }
    begin += part;
  }
  return places;
}

// cp gives rank 1 of 2 the columns 2 to 5 of 8, and tp each of its ranks half of these.
TEST(LocalRuns, OfAShardWithinAShardOverCp) {
  const Mesh mesh{{{"cp", 2}, {"tp", 2}}};
  const ParamShape value{"value", {2, 8}, {}};
  const Placement placement = {{PlacementKind::Sharded, "cp", 1},
                               {PlacementKind::Sharded, "tp", 1}};
  using Runs = std::vector<ElementRun>;
  EXPECT_EQ(local_runs(value, placement, mesh, 0), (Runs{{0, 2, 0}, {8, 2, 2}}));
  EXPECT_EQ(local_runs(value, placement, mesh, 1), (Runs{{6, 2, 0}, {14, 2, 2}}));
  EXPECT_EQ(local_runs(value, placement, mesh, 2), (Runs{{2, 2, 0}, {10, 2, 2}}));
  const Placement over_cp = {{PlacementKind::Sharded, "cp", 1}};
  EXPECT_EQ(local_runs(value, over_cp, mesh, 0), (Runs{{0, 2, 0}, {6, 4, 2}, {14, 2, 6}}));
}

TEST(LocalRuns, AreTheElementsOfTheLocalTensorInOrder) {
  const ParamShape& param = kParams[2];
  const Mesh mesh{{{"tp", 4}}};
  for (const int64_t dim : {0, 1, 2}) {
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      std::vector<std::vector<int64_t>> places;
      for (size_t i = 0; i < 3; ++i) {
        const bool is_sharded = static_cast<int64_t>(i) == dim;
        const std::vector<int64_t> parts =
            i < param.parts.size() ? param.parts[i] : std::vector<int64_t>{};
        places.push_back(is_sharded ? places_of(param.shape[i], parts, rank, 4)
                                    : places_of(param.shape[i], {}, 0, 1));
      }
      std::vector<int64_t> expected;  // by place in the local tensor
      for (const int64_t a : places[0]) {
        for (const int64_t b : places[1]) {
          for (const int64_t c : places[2]) {
            const bool padding = a < 0 || b < 0 || c < 0;
            expected.push_back(padding ? -1 : (a * param.shape[1] + b) * param.shape[2] + c);
          }
        }
      }
      std::vector<int64_t> found(expected.size(), -1);
      for (const ElementRun& run :
           local_runs(param, {{PlacementKind::Sharded, "tp", dim}}, mesh, rank)) {
        for (int64_t i = 0; i < run.elements; ++i) {
          found.at(static_cast<size_t>(run.at + i)) = run.first + i;
        }
      }
      EXPECT_EQ(found, expected) << "dim " << dim << " rank " << rank;
    }
  }
}

TEST(LocalRuns, ContiguousElementsAreOneRun) {
  const Mesh mesh{{{"tp", 2}}};
  EXPECT_EQ(local_runs({"a", {8, 4}, {}}, {}, mesh, 1), (std::vector<ElementRun>{{0, 32, 0}}));
  EXPECT_EQ(local_runs({"a", {8, 4}, {}}, {{PlacementKind::Sharded, "tp", 0}}, mesh, 1),
            (std::vector<ElementRun>{{16, 16, 0}}));
  EXPECT_EQ(local_runs({"a", {2, 4}, {}}, {{PlacementKind::Sharded, "tp", 1}}, mesh, 1),
            (std::vector<ElementRun>{{2, 2, 0}, {6, 2, 2}}));
}

}  // namespace
}  // namespace weft
