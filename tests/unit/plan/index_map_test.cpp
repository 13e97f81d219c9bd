#include "plan/index_map.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "graph/flat.h"

namespace weft {
namespace {

const std::vector<ParamShape> kParams = {
    {"a", {40, 64}, {40}}, {"b", {700}, {700}}, {"c", {24, 50, 3}, {8, 12, 4}}, {"d", {1}, {1}}};

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

// A plan that stores the parameters in flat buckets of two over an axis, or replicated.
Plan plan_of(const Mesh& mesh, const std::string& axis) {
  Plan plan;
  plan.mesh = mesh;
  if (axis.empty()) {
    for (const ParamShape& param : kParams) {
      plan.params.push_back({param.name, {0, DType::F32, param.shape}});
    }
    return plan;
  }
  for (size_t i = 0; i < kParams.size(); i += 2) {
    const std::vector<Shape> shapes = {kParams[i].shape, kParams[i + 1].shape};
    const int64_t shards = axis_ranks(mesh, axis);
    const int64_t shard = flat_padded((flat_size(shapes) + shards - 1) / shards);
    plan.params.push_back({kParams[i].name + "+1",
                           {0, DType::F32, {shard}},
                           axis,
                           {{kParams[i].name, shapes[0]}, {kParams[i + 1].name, shapes[1]}}});
  }
  return plan;
}

struct Case {
  const char* name;
  Mesh mesh;
  std::string axis;
};

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
};

class IndexMapTest : public testing::TestWithParam<Case> {};

TEST_P(IndexMapTest, EveryElementHasOneWriterAndAllItsReplicas) {
  const auto& [name, mesh, axis] = GetParam();
  const Plan plan = plan_of(mesh, axis);
  const int64_t replicas = mesh.ranks() / axis_ranks(mesh, axis);
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
  const auto& [name, mesh, axis] = GetParam();
  if (axis.empty()) return;
  const Plan plan = plan_of(mesh, axis);
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
  const auto& [name, mesh, axis] = GetParam();
  const Plan plan = plan_of(mesh, axis);
  const int64_t replicas = mesh.ranks() / axis_ranks(mesh, axis);
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

// All elements of the boxes, one by one.
std::vector<int64_t> elements_of(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<int64_t> elements;
  for (const Box& box : boxes) {
    for (int64_t local = 0; local < count(box.size); ++local) {
      int64_t rest = local, element = 0, stride = 1;
      for (size_t dim = shape.size(); dim-- > 0;) {
        element += (box.begin[dim] + rest % box.size[dim]) * stride;
        rest /= box.size[dim];
        stride *= shape[dim];
      }
      elements.push_back(element);
    }
  }
  return elements;
}

TEST(IndexMapBoxes, RunsAreTheElementsOfTheBoxesInOrder) {
  const ParamShape& param = kParams[2];
  const Mesh mesh{{{"tp", 4}, {"ep", 2}}};
  for (const int64_t dim : {0, 1, 2}) {
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      const Placement placement = {{PlacementKind::Sharded, "tp", dim},
                                   {PlacementKind::Sharded, "ep", (dim + 1) % 3}};
      const std::vector<Box> boxes = local_boxes(param, placement, mesh, rank);
      const std::vector<int64_t> expected = elements_of(param.shape, boxes);
      const auto total = static_cast<int64_t>(expected.size());
      for (const int64_t begin : {int64_t{0}, total / 3, (total + 1) / 2}) {
        const int64_t end = std::min(total, begin + (total + 1) / 2);
        std::vector<int64_t> found;
        for (const ElementRun& run : runs_of(param.shape, boxes, begin, end, 100)) {
          EXPECT_EQ(run.at, 100 + static_cast<int64_t>(found.size()));
          for (int64_t i = 0; i < run.elements; ++i) found.push_back(run.first + i);
        }
        EXPECT_EQ(found, std::vector<int64_t>(expected.begin() + begin, expected.begin() + end))
            << "dim " << dim << " rank " << rank << " from " << begin;
      }
    }
  }
}

TEST(IndexMapBoxes, ShardsOfEverySliceCoverTheParameterOnce) {
  const ParamShape& param = kParams[2];
  const Mesh mesh{{{"tp", 5}}};
  for (const int64_t dim : {0, 1, 2}) {
    std::vector<int64_t> seen(static_cast<size_t>(count(param.shape)));
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      const auto boxes = local_boxes(param, {{PlacementKind::Sharded, "tp", dim}}, mesh, rank);
      EXPECT_EQ(boxes.size(), param.slices.size());
      for (const int64_t element : elements_of(param.shape, boxes)) {
        ++seen.at(static_cast<size_t>(element));
      }
    }
    EXPECT_EQ(seen, std::vector<int64_t>(seen.size(), 1)) << dim;
  }
}

TEST(IndexMapBoxes, ContiguousBoxesGiveOneRun) {
  const Shape shape = {8, 4};
  const std::vector<Box> boxes = {{{2, 0}, {3, 4}}, {{5, 0}, {2, 4}}};
  EXPECT_EQ(runs_of(shape, boxes, 0, 20, 7), (std::vector<ElementRun>{{8, 20, 7}}));
  EXPECT_EQ(runs_of(shape, boxes, 3, 3, 7), std::vector<ElementRun>{});
}

}  // namespace
}  // namespace weft
