#include "plan/check.h"

#include <gtest/gtest.h>

#include "plan/text.h"
#include "support/tiny_plan.h"

namespace weft {
namespace {

// Two streams: b1 is written on compute, copied (as an add) on comm after e0, read back after e1.
constexpr std::string_view kTwoStreams = R"(plan two_streams
backend test
streams compute, comm
events 2
arena 1536
persistent 512
buffer b0 input 64 at 0 persistent "x"
buffer b1 activation 64 at 512 last 0..1 "a"
buffer b2 activation 64 at 768 last 1..3 "b"
buffer b3 activation 64 at 1024 last 2..3 "c"
buffer b4 output 64 at 256 persistent "y"
input "x" b0: f32[16]
output "y" b4: f32[16]
program last
step 0 compute gelu.plain(b0: f32[16]) -> b1: f32[16] signal e0 # fwd
step 1 comm gelu.plain(b1: f32[16]) -> b2: f32[16] wait e0 signal e1 # fwd
step 2 compute gelu.plain(b0: f32[16]) -> b3: f32[16] # fwd
step 3 compute add.plain(b2: f32[16], b3: f32[16]) -> b4: f32[16] wait e1 # fwd
)";

std::string complaint(const Plan& plan) {
  try {
    check_plan(plan);
    return "";
  } catch (const InternalError& error) {
    return error.what();
  }
}

// The error for the plan with one part of its text replaced.
std::string complaint_with(std::string_view plan, std::string_view from, std::string_view to) {
  std::string text(plan);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return complaint(parse_plan(text));
}

std::string complaint_with(std::string_view from, std::string_view to) {
  return complaint_with(kTwoStreams, from, to);
}

TEST(CheckPlan, AcceptsARightPlan) {
  EXPECT_EQ(complaint(parse_plan(kTwoStreams)), "");
  EXPECT_EQ(complaint(tiny_plan()), "");
}

TEST(CheckPlan, FindsLiveBuffersThatOverlap) {
  EXPECT_EQ(complaint_with("at 1024 last 2..3", "at 768 last 2..3"),
            "plan two_streams: buffers b3 \"c\" [768, 832) and b2 \"b\" [768, 832) "
            "overlap at plan step 2 of last");
  EXPECT_EQ(complaint_with("output 64 at 256", "output 64 at 0"),
            "plan two_streams: buffers b4 \"y\" [0, 64) and b0 \"x\" [0, 64) "
            "overlap at all times");
}

TEST(CheckPlan, FindsALifetimeThatEndsTooEarly) {
  EXPECT_EQ(complaint_with("last 1..3 \"b\"", "last 1..2 \"b\""),
            "plan two_streams: plan step 3 add (last: fwd): uses b2 \"b\" [768, 832), "
            "which lives from plan step 1 to 2");
}

TEST(CheckPlan, FindsAMissingEventBetweenWriteAndRead) {
  EXPECT_EQ(complaint_with(" wait e0", ""),
            "plan two_streams: plan step 1 gelu (last: fwd): reads b1 \"a\" [512, 576) "
            "with no event after plan step 0 gelu (last: fwd), which writes it");
  EXPECT_EQ(complaint_with(" wait e1", ""),
            "plan two_streams: plan step 3 add (last: fwd): reads b2 \"b\" [768, 832) "
            "with no event after plan step 1 gelu (last: fwd), which writes it");
}

TEST(CheckPlan, FindsBytesReusedWhileAnotherStreamStillReadsThem) {
  // By step number b1 is dead at step 2, but comm may still be reading it.
  EXPECT_EQ(complaint_with("at 1024 last 2..3", "at 512 last 2..3"),
            "plan two_streams: plan step 2 gelu (last: fwd): writes b3 \"c\" [512, 576) "
            "with no event after plan step 1 gelu (last: fwd), which uses those bytes");
}

TEST(CheckPlan, FindsAReadBeforeAnyWrite) {
  EXPECT_EQ(complaint_with("gelu.plain(b0: f32[16]) -> b1", "gelu.plain(b1: f32[16]) -> b1"),
            "plan two_streams: plan step 0 gelu (last: fwd): reads b1 \"a\" [512, 576) "
            "before anything is written to it");
}

TEST(CheckPlan, FindsAnEventThatNothingSignals) {
  EXPECT_EQ(complaint_with(" signal e0", ""),
            "plan two_streams: plan step 1 gelu (last: fwd): waits for e0, which nothing "
            "signals before");
  EXPECT_EQ(complaint_with("wait e1", "wait e2"),
            "plan two_streams: plan step 3 add (last: fwd): names event e2 of 2");
}

TEST(CheckPlan, FindsReferencesOutOfBounds) {
  EXPECT_EQ(complaint_with("(b2: f32[16], b3", "(b9: f32[16], b3"),
            "plan two_streams: plan step 3 add (last: fwd): names buffer b9 of 5");
  EXPECT_EQ(complaint_with("(b2: f32[16], b3", "(b2: f32[17], b3"),
            "plan two_streams: plan step 3 add (last: fwd): sees 68 bytes at 0 of b2 \"b\" "
            "[768, 832)");
  EXPECT_EQ(complaint_with("at 1024 last", "at 1536 last"),
            "plan two_streams: buffer b3 \"c\" [1536, 1600) outside the arena of "
            "1536");
  EXPECT_EQ(complaint_with("at 1024 last", "at 1025 last"),
            "plan two_streams: buffer b3 \"c\" [1025, 1089) not aligned to 256");
  EXPECT_EQ(complaint_with("at 1024 last", "at 256 last"),
            "plan two_streams: buffer b3 \"c\" [256, 320) within the persistent "
            "512 bytes");
  EXPECT_EQ(complaint_with("output 64 at 256", "output 64 at 512"),
            "plan two_streams: persistent buffer b4 \"y\" [512, 576) beyond the "
            "persistent 512 bytes");
}

TEST(CheckPlan, FindsABufferOfAnotherProgram) {
  EXPECT_EQ(complaint_with("program last", "program eval"),
            "plan two_streams: buffer b1 \"a\" [512, 576) lives from plan step 0 to 1 "
            "of 0 in last");
}

TEST(CheckPlan, FindsAnOutputThatNothingWrites) {
  Plan plan = parse_plan(kTwoStreams);
  plan.programs[static_cast<size_t>(ProgramKind::Last)].pop_back();
  plan.buffers[2].last = plan.buffers[3].last = 2;
  EXPECT_EQ(complaint(plan), "plan two_streams: no step writes output \"y\"");
}

TEST(CheckPlan, FindsABindingToATransientBuffer) {
  EXPECT_EQ(complaint_with("output \"y\" b4", "output \"y\" b3"),
            "plan two_streams: binding \"y\" does not fit a persistent buffer b3");
}

TEST(CheckPlan, FindsAStateWhoseNameIsNotItsRoleAndOwner) {
  Plan plan = tiny_plan();
  ASSERT_FALSE(plan.states.empty());
  plan.states[0].state->owner = "another";
  EXPECT_NE(complaint(plan).find("has no owner and role of that name"), std::string::npos);
  plan.states[0].state.reset();
  EXPECT_NE(complaint(plan).find("has no owner and role of that name"), std::string::npos);
}

TEST(CheckPlan, FollowsEventsThroughAThirdStream) {
  constexpr std::string_view kChain = R"(plan chain
backend test
streams a, b, c
events 2
arena 1024
persistent 256
buffer b0 input 64 at 0 persistent "x"
buffer b1 activation 64 at 256 last 0..2 "u"
buffer b2 activation 64 at 512 last 1..2 "v"
buffer b3 activation 64 at 768 last 2..2 "w"
input "x" b0: f32[16]
program last
step 0 a gelu.plain(b0: f32[16]) -> b1: f32[16] signal e0 # fwd
step 1 b gelu.plain(b0: f32[16]) -> b2: f32[16] wait e0 signal e1 # fwd
step 2 c add.plain(b1: f32[16], b2: f32[16]) -> b3: f32[16] wait e1 # fwd
)";
  EXPECT_EQ(complaint(parse_plan(kChain)), "");
}

// Two gathers into shared memory; the second overwrites the first after it has been read.
constexpr std::string_view kShared = R"(plan shared
backend test
mesh dp=2
streams compute, gather
events 3
arena 4352
persistent 4352
shared dp 8192
buffer b0 param 4096 at 0 persistent "w"
buffer b1 gathered 8192 at 0 shared dp last 0..1 "w.full"
buffer b2 gathered 8192 at 0 shared dp last 2..3 "w.again"
buffer b3 output 4 at 4096 persistent "y"
param "w" b0: f32[1024]
output "y" b3: f32[]
program last
step 0 gather all_gather.plain(b0: f32[1024]; axis="dp", types=["f32[2048]"]) -> b1: f32[2048] signal e0 # fwd
step 1 compute gelu.plain(b1: f32[]) -> b3: f32[] wait e0 signal e1 # fwd
step 2 gather all_gather.plain(b0: f32[1024]; axis="dp", types=["f32[2048]"]) -> b2: f32[2048] wait e1 signal e2 # bwd
step 3 compute gelu.plain(b2: f32[]) -> b3: f32[] wait e2 # bwd
)";

TEST(CheckPlan, SharedMemoryIsASpaceOfItsOwn) {
  EXPECT_EQ(complaint(parse_plan(kShared)), "");
  EXPECT_EQ(complaint_with(kShared, "shared dp 8192", "shared dp 4096"),
            "plan shared: buffer b1 \"w.full\" [0, 8192) outside the shared space "
            "of 4096");
  EXPECT_EQ(complaint_with(kShared, "shared dp last 2..3", "shared dp last 1..3"),
            "plan shared: buffers b2 \"w.again\" [0, 8192) and b1 \"w.full\" [0, "
            "8192) overlap at plan step 1 of last");
  EXPECT_EQ(complaint_with(kShared, "shared dp last 2..3", "shared dp persistent"),
            "plan shared: buffer b2 \"w.again\" [0, 8192) is persistent in a shared "
            "space");
}

// A peer may still be reading that memory unless every rank has finished its reads.
TEST(CheckPlan, AGatherIntoSharedMemoryComesAfterTheReadsOfWhatItReplaces) {
  EXPECT_EQ(complaint_with(kShared, "b2: f32[2048] wait e1", "b2: f32[2048]"),
            "plan shared: plan step 2 all_gather (last: bwd): writes b2 \"w.again\" [0, "
            "8192) with no event after plan step 1 gelu (last: fwd), which uses those bytes");
}

TEST(CheckPlan, OnlyGathersOverItsAxisWriteSharedMemory) {
  EXPECT_EQ(complaint_with(kShared, "gelu.plain(b2: f32[]) -> b3", "gelu.plain(b2: f32[]) -> b2"),
            "plan shared: plan step 3 gelu (last: bwd): writes b2 \"w.again\" [0, 8192), "
            "which only a gather over dp may write");
}

// A bucket of two gradients, 1030 and 8 elements, over two ranks with slots of two blocks each.
constexpr std::string_view kBucket = R"(plan bucket
backend test
mesh dp=2
streams compute
events 0
arena 24576
persistent 24576
buffer b0 input 16384 at 0 persistent "g"
buffer b1 output 8192 at 16384 persistent "y"
input "g" b0: f32[4096]
output "y" b1: f32[2048]
program last
step 0 compute reduce_scatter.plain(b0: f32[1030], b0+8192: f32[8]; axis="dp") -> b1: f32[2048] # bwd
)";

TEST(CheckPlan, ABucketIsOneRangeWithEveryRanksSlot) {
  EXPECT_EQ(complaint(parse_plan(kBucket)), "");
  EXPECT_EQ(complaint_with(kBucket, "b0+8192", "b0+4352"),
            "plan bucket: plan step 0 reduce_scatter (last: bwd): has its member 1 at "
            "4352 of b0 \"g\" [0, 16384), expected 8192 of b0 \"g\" [0, 16384)");
  EXPECT_EQ(complaint_with(kBucket, "mesh dp=2", "mesh dp=3"),
            "plan bucket: plan step 0 reduce_scatter (last: bwd): needs 24576 bytes for "
            "the slots of 3 ranks in b0 \"g\" [0, 16384)");
}

TEST(CheckPlan, FindsEveryOffsetMovedOntoALiveNeighbour) {
  const Plan good = tiny_plan();
  int64_t moved = 0;
  for (size_t i = 0; i < good.buffers.size(); ++i) {
    for (size_t j = 0; j < good.buffers.size(); ++j) {
      const Buffer& a = good.buffers[i];
      const Buffer& b = good.buffers[j];
      if (i == j || a.persistent || b.persistent || a.program != b.program) continue;
      if (a.last < b.first || b.last < a.first) continue;
      Plan bad = good;
      bad.arena_bytes += 4096;
      bad.buffers[i].offset = b.offset;
      EXPECT_NE(complaint(bad), "") << a.name << " on " << b.name;
      ++moved;
    }
  }
  EXPECT_GT(moved, 10);
}

}  // namespace
}  // namespace weft
