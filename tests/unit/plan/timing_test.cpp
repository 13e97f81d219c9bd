// Streams that run concurrently and wait for events.
#include "plan/timing.h"

#include <gtest/gtest.h>

#include "plan/comm_volume.h"

namespace weft {
namespace {

struct StepOn {
  std::string op;
  double seconds = 0;
  int64_t stream = 0;
  std::vector<int64_t> waits = {};
  int64_t signal = -1;
  std::string axis = "shard";  // of a collective
};

void set_program(Plan& plan, ProgramKind program, const std::vector<StepOn>& list) {
  auto& steps = plan.programs[static_cast<size_t>(program)];
  for (const StepOn& on : list) {
    Step step;
    step.op = on.op;
    step.seconds = on.seconds;
    step.stream = on.stream;
    step.waits = on.waits;
    step.signal = on.signal;
    if (is_collective(step)) step.attrs = {on.axis};
    steps.push_back(step);
  }
}

Plan plan_of(const std::vector<StepOn>& list) {
  Plan plan;
  plan.streams = {"compute", "gather", "reduce"};
  plan.num_events = 4;
  set_program(plan, ProgramKind::Last, list);
  return plan;
}

TEST(PlanTime, WhatOverlapsWithComputationCostsNothing) {
  const Plan plan = plan_of({{"all_gather", 2, 1, {}, 0}, {"gelu", 3}, {"gelu", 1, 0, {0}}});
  const PlanTime time = program_time(plan, ProgramKind::Last);
  EXPECT_EQ(time.seconds, 4);
  EXPECT_EQ(time.compute_seconds, 4);
  EXPECT_EQ(time.collective_seconds, 2);
  EXPECT_EQ(time.exposed_seconds(), 0);
}

TEST(PlanTime, WaitingForACollectiveIsExposed) {
  const Plan plan = plan_of(
      {{"gelu", 1, 0, {}, 0}, {"all_gather", 5, 1, {0}, 1}, {"gelu", 3}, {"gelu", 1, 0, {1}}});
  const PlanTime time = program_time(plan, ProgramKind::Last);
  EXPECT_EQ(time.seconds, 7);  // 1, then the gather, then 1
  EXPECT_EQ(time.exposed_seconds(), 2);
}

TEST(PlanTime, ACollectiveAmongTheComputationIsExposed) {
  const Plan plan = plan_of({{"gelu", 1}, {"reduce_scatter", 5}, {"gelu", 3}});
  EXPECT_EQ(program_time(plan, ProgramKind::Last).exposed_seconds(), 5);
}

// The computation waits 2 s for the gather of one axis, then 5 s for a collective of another that
// runs among it, and the step ends 1 s later with one of a third.
TEST(PlanTime, ExposedTimeIsThatOfAnAxis) {
  const Plan plan = plan_of({{"gelu", 1, 0, {}, 0},
                             {"all_gather", 5, 1, {0}, 1},
                             {"gelu", 3},
                             {"gelu", 1, 0, {1}},
                             {"all_gather", 5, 0, {}, 2, "tp"},
                             {"reduce_scatter", 3, 2, {2}, -1, "cp"},
                             {"gelu", 2}});
  const ProgramTime time = program_time(plan, ProgramKind::Last);
  const std::map<std::string, double> expected = {{"cp", 1}, {"shard", 2}, {"tp", 5}};
  EXPECT_EQ(time.exposed_by_axis, expected);
  EXPECT_EQ(time.exposed_seconds(), 8);
}

TEST(PlanTime, TheStepEndsWithItsLastStream) {
  const Plan plan = plan_of({{"gelu", 1, 0, {}, 0}, {"all_gather", 5, 1, {0}}});
  EXPECT_EQ(program_time(plan, ProgramKind::Last).seconds, 6);
}

TEST(PlanTime, CollectivesOfOneAxisShareItsLink) {
  const std::vector<StepOn> same = {{"all_gather", 5, 1}, {"reduce_scatter", 3, 2}};
  EXPECT_EQ(program_time(plan_of(same), ProgramKind::Last).seconds, 8);
  std::vector<StepOn> apart = same;
  apart[1].axis = "copies";
  EXPECT_EQ(program_time(plan_of(apart), ProgramKind::Last).seconds, 5);
}

TEST(PlanTime, AStepIsAllItsMicroBatches) {
  Plan plan = plan_of({{"gelu", 10}, {"all_reduce", 1}});
  set_program(plan, ProgramKind::Micro, {{"gelu", 7}});
  const PlanTime time = step_time(plan, 4);
  EXPECT_EQ(time.seconds, 3 * 7 + 11);
  EXPECT_EQ(time.compute_seconds, 3 * 7 + 10);
  EXPECT_EQ(time.collective_seconds, 1);
  EXPECT_EQ(step_time(plan, 1).seconds, 11);
}

}  // namespace
}  // namespace weft
