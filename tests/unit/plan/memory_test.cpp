#include "plan/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/philox.h"
#include "plan/check.h"
#include "plan/summary.h"

namespace weft {
namespace {

// A plan with empty steps and random lifetimes and sizes: only its buffers matter.
Plan random_buffers(uint64_t seed, int64_t buffers, int64_t steps) {
  const PhiloxKey key = random_key(seed, 1);
  Plan plan;
  plan.name = cat("random ", seed);
  plan.streams = {"compute"};
  for (int i = 0; i < kPrograms; ++i) plan.programs[i].resize(steps);
  for (int64_t i = 0; i < buffers; ++i) {
    const auto draw = [&](uint64_t what, int64_t limit) {
      return static_cast<int64_t>(random_below(key, what, i, limit));
    };
    Buffer buffer;
    buffer.name = cat("v", i);
    buffer.bytes = draw(0, 20) == 0 ? 0 : draw(1, 1 << (1 + draw(2, 20)));
    buffer.persistent = draw(3, 8) == 0;
    if (!buffer.persistent) {
      buffer.program = static_cast<ProgramKind>(draw(4, kPrograms));
      buffer.first = draw(5, steps);
      buffer.last = std::min(steps - 1, buffer.first + draw(6, draw(7, 4) == 0 ? steps : 8));
    }
    plan.buffers.push_back(buffer);
  }
  return plan;
}

TEST(AssignOffsets, RandomLifetimesPassTheChecker) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Plan plan = random_buffers(seed, 200, 40);
    assign_offsets(plan);
    EXPECT_NO_THROW(check_plan(plan));
    for (int i = 0; i < kPrograms; ++i) {
      EXPECT_LE(peak_memory(plan, static_cast<ProgramKind>(i)).total, plan.arena_bytes);
    }
  }
}

TEST(AssignOffsets, PacksALayeredStepTightly) {
  // A forward that keeps one buffer per layer and a backward that frees them in turn: no memory is
  // lost to fragmentation.
  Plan plan;
  plan.name = "layers";
  plan.streams = {"compute"};
  constexpr int64_t kLayers = 10;
  plan.programs[static_cast<size_t>(ProgramKind::Last)].resize(2 * kLayers);
  for (int64_t i = 0; i < kLayers; ++i) {
    Buffer kept;
    kept.bytes = 4096;
    kept.first = i;
    kept.last = 2 * kLayers - 1 - i;
    plan.buffers.push_back(kept);
    Buffer scratch;
    scratch.bytes = 1024;
    scratch.first = scratch.last = i;
    plan.buffers.push_back(scratch);
  }
  assign_offsets(plan);
  EXPECT_EQ(plan.arena_bytes, kLayers * 4096 + 1024);
  EXPECT_EQ(plan.arena_bytes, peak_memory(plan, ProgramKind::Last).total);
}

TEST(AssignOffsets, ArenaIsPersistentPlusTheLargestProgram) {
  Plan plan;
  plan.streams = {"compute"};
  for (int i = 0; i < kPrograms; ++i) plan.programs[i].resize(1);
  const auto add = [&](int64_t bytes, bool persistent, ProgramKind program) {
    Buffer buffer;
    buffer.bytes = bytes;
    buffer.persistent = persistent;
    buffer.program = program;
    plan.buffers.push_back(buffer);
  };
  add(1000, false, ProgramKind::Micro);
  add(1, true, ProgramKind::Last);
  add(300, true, ProgramKind::Last);
  add(2000, false, ProgramKind::Eval);
  assign_offsets(plan);
  EXPECT_EQ(plan.persistent_bytes, 256 + 512);
  EXPECT_EQ(plan.arena_bytes, 256 + 512 + 2048);
  EXPECT_EQ(plan.buffers[2].offset, 256);
  EXPECT_EQ(plan.buffers[0].offset, 768);
  EXPECT_EQ(plan.buffers[3].offset, 768);
}

TEST(AssignOffsets, TheSameBuffersGetTheSameOffsets) {
  Plan a = random_buffers(7, 500, 60);
  Plan b = random_buffers(7, 500, 60);
  assign_offsets(a);
  assign_offsets(b);
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_EQ(a.buffers[i].offset, b.buffers[i].offset) << i;
  }
}

TEST(AssignOffsets, TenThousandBuffersAreQuick) {
  Plan plan = random_buffers(3, 12000, 8000);
  for (Buffer& buffer : plan.buffers) buffer.program = ProgramKind::Last;
  const auto start = std::chrono::steady_clock::now();
  assign_offsets(plan);
  const auto middle = std::chrono::steady_clock::now();
  check_plan(plan);
  const auto end = std::chrono::steady_clock::now();
  const auto ms = [](auto span) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
  };
  RecordProperty("assign_ms", static_cast<int>(ms(middle - start)));
  RecordProperty("check_ms", static_cast<int>(ms(end - middle)));
  // About a tenth of this on an idle core; the slack is for sanitizers and busy machines.
  EXPECT_LT(ms(end - start), 4000);
}

}  // namespace
}  // namespace weft
