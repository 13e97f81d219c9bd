#include "plan/summary.h"

#include <gtest/gtest.h>

#include "support/tiny_plan.h"

namespace weft {
namespace {

TEST(Summary, FindsThePeakAndItsParts) {
  Plan plan;
  plan.streams = {"compute"};
  plan.programs[static_cast<size_t>(ProgramKind::Last)].resize(4);
  const auto add = [&](BufferKind kind, int64_t bytes, int64_t first, int64_t last) {
    Buffer buffer;
    buffer.kind = kind;
    buffer.bytes = bytes;
    buffer.persistent = first < 0;
    buffer.first = first;
    buffer.last = last;
    plan.buffers.push_back(buffer);
  };
  add(BufferKind::Param, 100, -1, -1);
  add(BufferKind::Activation, 10, 0, 2);
  add(BufferKind::Activation, 20, 1, 2);
  add(BufferKind::Gradient, 5, 2, 3);
  add(BufferKind::Workspace, 7, 3, 3);
  const Peak peak = peak_memory(plan, ProgramKind::Last);
  EXPECT_EQ(peak.step, 2);
  EXPECT_EQ(peak.total, 135);
  EXPECT_EQ(peak.bytes[static_cast<size_t>(BufferKind::Param)], 100);
  EXPECT_EQ(peak.bytes[static_cast<size_t>(BufferKind::Activation)], 30);
  EXPECT_EQ(peak.bytes[static_cast<size_t>(BufferKind::Gradient)], 5);
  EXPECT_EQ(peak.bytes[static_cast<size_t>(BufferKind::Workspace)], 0);
  EXPECT_EQ(peak_memory(plan, ProgramKind::Eval).step, -1);
}

TEST(Summary, SaysWhatWasReplanned) {
  EXPECT_EQ(to_string(Replanning{.times = 1, .reserved_bytes = 3 << 20, .asked_prefetch = {}}),
            "replanned 1 time: 3 MiB reserved for fragmentation");
  EXPECT_EQ(to_string(Replanning{.times = 5, .reserved_bytes = 3 << 20, .asked_prefetch = -1}),
            "replanned 5 times: compile.prefetch = 0 instead of -1, no memory left for overlap");
}

TEST(Summary, ReadsLikeAPage) {
  EXPECT_EQ(to_string(summarize(tiny_plan())), R"(plan          tiny  backend test  mesh 1 rank
bound         1 params  4 states  3 inputs  2 outputs
streams       compute  events 0
arena         4 KiB (4096 bytes)  persistent 2.5 KiB
program micro 8 steps  fwd 5  bwd 3
  flops       2.21 k  memory traffic 3.07 KiB
  time        11.1 us predicted  matmul 27%  accumulate 16%  add 12%  gelu_grad 12%  gelu 11%
  peak        2.5 KiB at plan step 6 matmul (micro: layers.0 bwd)
  of it       param 256 B  gradient 512 B  optimizer 516 B  activation 128 B  input 136 B  output 8 B  workspace 1000 B
program last  12 steps  fwd 5  bwd 3  opt 4
  flops       3.24 k  memory traffic 5.29 KiB
  time        17.4 us predicted  matmul 17%  adamw 16%  square_sum 15%  norm 13%  accumulate 10%
  peak        2.5 KiB at plan step 6 matmul (last: layers.0 bwd)
  of it       param 256 B  gradient 512 B  optimizer 516 B  activation 128 B  input 136 B  output 8 B  workspace 1000 B
program eval  5 steps  fwd 5
  flops       993  memory traffic 1.44 KiB
  time        6.48 us predicted  matmul 23%  add 21%  gelu 19%  square_sum 19%  norm 17%
  peak        2.25 KiB at plan step 0 matmul (eval: layers.0 fwd)
  of it       param 256 B  gradient 256 B  optimizer 516 B  activation 128 B  input 136 B  output 8 B  workspace 1000 B
largest       1000 B  dw.workspace (workspace)
              256 B  dw (gradient)
              256 B  grad.w (gradient)
              256 B  m.w (optimizer)
              256 B  v.w (optimizer)
)");
}

}  // namespace
}  // namespace weft
