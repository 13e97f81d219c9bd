#include "plan/comm_volume.h"

#include <gtest/gtest.h>

#include "graph/call_text.h"
#include "graph/ops/ops.h"
#include "plan/summary.h"

namespace weft {
namespace {

// Members of 1024 and 600 elements: one flat block each, 1024 elements per rank with two ranks.
const Shape kFirst{1024};
const Shape kSecond{600};
constexpr int64_t kFlat = 2048;

TensorRef ref(int64_t buffer, DType dtype, Shape shape, int64_t offset = 0) {
  return {buffer, dtype, std::move(shape), offset};
}

Step gather() {
  Step step;
  step.op = "all_gather";
  step.operands = {ref(0, DType::F32, {kFlat / 2})};
  step.results = {ref(1, DType::BF16, kFirst), ref(1, DType::BF16, kSecond, 1024 * 2)};
  step.attrs = parse_call_attrs(kAllGather, "axis=\"shard\", types=[\"bf16[1024]\",\"bf16[600]\"]");
  return step;
}

Step scatter() {
  Step step;
  step.op = "reduce_scatter";
  step.operands = {ref(2, DType::F32, kFirst), ref(2, DType::F32, kSecond, 1024 * 4)};
  step.results = {ref(3, DType::F32, {kFlat / 2})};
  step.attrs = parse_call_attrs(kReduceScatter, "axis=\"shard\"");
  step.phase = Phase::Backward;
  return step;
}

Step sum(std::vector<TensorRef> refs) {
  Step step;
  step.op = "all_reduce";
  step.operands = refs;
  step.results = refs;
  step.attrs = {std::string("copies")};
  step.phase = Phase::Backward;
  return step;
}

Plan plan_of(std::vector<Step> steps) {
  Plan plan;
  plan.mesh.axes = {{"copies", 4}, {"shard", 2}};
  plan.streams = {"compute"};
  plan.programs[static_cast<size_t>(ProgramKind::Last)] = std::move(steps);
  return plan;
}

TEST(CommVolume, GathersSendTheirPartInTheGatheredDtype) {
  const auto volumes = collective_volumes(plan_of({gather(), gather()}), ProgramKind::Last);
  ASSERT_EQ(volumes.size(), 1u);
  EXPECT_EQ(volumes[0],
            (CollectiveVolume{"all_gather", "shard", 2, 2, kFlat * 2, kFlat * 2, 2 * kFlat}));
}

TEST(CommVolume, CollectivesAlongADimMoveOneTensorUnpacked) {
  Step gathers = gather();
  gathers.operands = {ref(0, DType::BF16, {4, 3, 5})};
  gathers.results = {ref(1, DType::BF16, {4, 6, 5}, 512)};
  gathers.attrs = parse_call_attrs(kAllGather, "axis=\"shard\", dim=1");
  Step scatters = scatter();
  scatters.operands = {ref(2, DType::F32, {4, 6, 5}, 64)};
  scatters.results = {ref(3, DType::F32, {2, 6, 5})};
  scatters.attrs = parse_call_attrs(kReduceScatter, "axis=\"shard\", dim=0");
  const Plan plan = plan_of({gathers, scatters});
  const auto volumes = collective_volumes(plan, ProgramKind::Last);
  ASSERT_EQ(volumes.size(), 2u);
  EXPECT_EQ(volumes[0], (CollectiveVolume{"all_gather", "shard", 2, 1, 240, 240, 120}));
  EXPECT_EQ(volumes[1], (CollectiveVolume{"reduce_scatter", "shard", 2, 1, 480, 480, 240}));
  EXPECT_EQ(packing_bytes(plan, ProgramKind::Last), 0);
}

// A workspace means that the transport sends contiguous memory only.
TEST(CommVolume, ShardsAlongAnInnerDimArePackedInTheWorkspace) {
  const auto moves = [](int64_t from, int64_t to) {
    Step step;
    step.op = "all_to_all";
    const Shape full = {4, 6, 8};
    Shape operand = full, result = full;
    operand[static_cast<size_t>(from)] /= 2;
    result[static_cast<size_t>(to)] /= 2;
    step.operands = {ref(0, DType::BF16, operand)};
    step.results = {ref(1, DType::BF16, result)};
    step.attrs = parse_call_attrs(kAllToAll, cat("axis=\"shard\", from=", from, ", to=", to));
    step.workspace = 4;
    return step;
  };
  const auto packed = [](const Step& step) {
    return packing_bytes(plan_of({step}), ProgramKind::Last);
  };
  EXPECT_EQ(packed(moves(1, 2)), 2 * 192);
  EXPECT_EQ(packed(moves(0, 1)), 192);  // arrives in place
  EXPECT_EQ(packed(moves(1, 0)), 192);  // sent as it is
  Step gathers = gather();
  gathers.operands = {ref(0, DType::BF16, {4, 3, 5})};
  gathers.results = {ref(1, DType::BF16, {4, 6, 5})};
  gathers.attrs = parse_call_attrs(kAllGather, "axis=\"shard\", dim=1");
  EXPECT_EQ(packed(gathers), 0);
  gathers.workspace = 4;
  EXPECT_EQ(packed(gathers), 240);
  EXPECT_EQ(collective_volumes(plan_of({gathers}), ProgramKind::Last).at(0).packed_bytes, 240);
}

TEST(CommVolume, AShiftSendsAllOfATensorAndAnAllToAllNotItsOwnPart) {
  Step moves;
  moves.op = "all_to_all";
  moves.operands = {ref(0, DType::BF16, {4, 6, 5})};
  moves.results = {ref(1, DType::BF16, {8, 3, 5})};
  moves.attrs = parse_call_attrs(kAllToAll, "axis=\"shard\", from=0, to=1");
  Step shifts = moves;
  shifts.op = "shift";
  shifts.results = {ref(1, DType::BF16, {4, 6, 5})};
  shifts.attrs = parse_call_attrs(kShift, "axis=\"shard\"");
  const auto volumes = collective_volumes(plan_of({moves, shifts}), ProgramKind::Last);
  ASSERT_EQ(volumes.size(), 2u);
  EXPECT_EQ(volumes[0], (CollectiveVolume{"all_to_all", "shard", 2, 1, 240, 240, 120}));
  EXPECT_EQ(volumes[1], (CollectiveVolume{"shift", "shard", 2, 1, 240, 240, 240}));
}

TEST(CommVolume, ReductionsSendTheDtypeOfTheirOperands) {
  Step step = scatter();
  step.operands = {ref(2, DType::BF16, kFirst), ref(2, DType::BF16, kSecond, 1024 * 2)};
  step.attrs.at(1) = std::string("f32");
  const auto volumes = collective_volumes(plan_of({step}), ProgramKind::Last);
  ASSERT_EQ(volumes.size(), 1u);
  EXPECT_EQ(volumes[0],
            (CollectiveVolume{"reduce_scatter", "shard", 2, 1, kFlat * 2, kFlat * 2, kFlat}));
}

TEST(CommVolume, KindsAndAxesAreCountedApart) {
  const TensorRef scalar = ref(4, DType::F32, {});
  const Plan plan = plan_of({scatter(), sum(scatter().operands), sum({scalar})});
  const auto volumes = collective_volumes(plan, ProgramKind::Last);
  ASSERT_EQ(volumes.size(), 2u);
  // Three quarters of the bucket and of the scalar, once to scatter and once to gather.
  EXPECT_EQ(volumes[0],
            (CollectiveVolume{"all_reduce", "copies", 4, 2, 4, kFlat * 4, 2 * 3 * (kFlat + 1)}));
  EXPECT_EQ(volumes[1],
            (CollectiveVolume{"reduce_scatter", "shard", 2, 1, kFlat * 4, kFlat * 4, kFlat * 2}));
  EXPECT_TRUE(collective_volumes(plan, ProgramKind::Micro).empty());
}

TEST(CommVolume, MembersInOneBufferAreNotCopied) {
  const Plan plan = plan_of({gather(), scatter(), sum(scatter().operands)});
  EXPECT_EQ(packing_bytes(plan, ProgramKind::Last), 0);
}

TEST(CommVolume, MembersElsewhereAreCopied) {
  Step other_buffer = scatter();
  other_buffer.operands[1].buffer = 9;
  EXPECT_EQ(packing_bytes(plan_of({other_buffer}), ProgramKind::Last), 600 * 4);
  Step other_offset = gather();
  other_offset.results[1].offset += 2;
  EXPECT_EQ(packing_bytes(plan_of({other_offset}), ProgramKind::Last), 600 * 2);
  Step not_in_place = sum(scatter().operands);
  for (TensorRef& result : not_in_place.results) result.buffer = 9;
  EXPECT_EQ(packing_bytes(plan_of({not_in_place}), ProgramKind::Last), (1024 + 600) * 4);
  Step not_into = gather();
  not_into.operands.insert(not_into.operands.end(),
                           {ref(9, DType::BF16, kFirst), not_into.results[1]});
  EXPECT_EQ(packing_bytes(plan_of({not_into}), ProgramKind::Last), 1024 * 2);
}

TEST(CommVolume, BucketsAreShardedParametersOrSummedGradients) {
  Plan plan = plan_of({sum(scatter().operands), sum({ref(4, DType::F32, {8})})});
  plan.buffers.resize(5);
  plan.buffers[static_cast<size_t>(scatter().operands[0].buffer)].name = "d.w";
  plan.buffers[4].name = "d.b";
  EXPECT_EQ(buckets_of(plan), (std::vector<BucketSize>{{"d.w+1", kFlat * 4}, {"d.b", 32}}));
  plan.params.push_back({"w+1", ref(0, DType::F32, {kFlat / 2}), "shard", {}});
  EXPECT_EQ(buckets_of(plan), (std::vector<BucketSize>{{"w+1", kFlat * 4}}));
  EXPECT_TRUE(buckets_of(plan_of({})).empty());
}

TEST(CommVolume, TheSummarySaysIt) {
  const std::string text = to_string(summarize(plan_of({gather(), scatter()})));
  EXPECT_NE(text.find(R"(
  collectives all_gather shard=2  1 of 4 KiB  sent per rank 2 KiB
              reduce_scatter shard=2  1 of 8 KiB  sent per rank 4 KiB
              copied for packing 0 B
)"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace weft
