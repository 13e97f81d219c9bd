#include "plan/text.h"

#include <gtest/gtest.h>

#include "support/tiny_plan.h"
#include "support/user_error.h"

namespace weft {
namespace {

TEST(PlanText, PrintsAndParsesToTheSameBytes) {
  const std::string text = print_plan(tiny_plan());
  EXPECT_EQ(print_plan(parse_plan(text)), text);
}

TEST(PlanText, KeepsEveryField) {
  Plan plan;
  plan.name = "every field";
  plan.backend = "cuda";
  plan.tuning = "1234567890";
  plan.tf32 = true;
  plan.mesh = {{{"dp", 4}, {"tp", 2}}, {{"edp", 2}, {"ep", 4}}};
  plan.streams = {"compute", "comm"};
  plan.num_events = 3;
  plan.arena_bytes = 8192;
  plan.persistent_bytes = 256;
  plan.shared = {{"tp", 64}, {"dp", 4096}};
  for (int i = 0; i < kBufferKinds; ++i) {
    Buffer buffer;
    buffer.name = cat("quo\"te \\ # ", i);
    buffer.kind = static_cast<BufferKind>(i);
    buffer.bytes = 100 + i;
    buffer.offset = 256 * i;
    buffer.persistent = i == 0;
    if (i > 0) {
      buffer.program = static_cast<ProgramKind>(i % kPrograms);
      buffer.first = i;
      buffer.last = 2 * i;
      buffer.shared = i == 4 ? 1 : -1;
    }
    plan.buffers.push_back(buffer);
  }
  plan.inputs = {{"in", {0, DType::I32, {2, 3}}}};
  plan.params = {{"layers.0.w", {1, DType::BF16, {}}}};
  plan.states = {{"m.w", {2, DType::F64, {5}}}};
  plan.states[0].state = {StateRole::FirstMoment, "w"};
  plan.outputs = {{"out", {3, DType::F16, {1}}}};
  Step step;
  step.op = "all_reduce";
  step.kernel = "jit";
  step.operands = {{0, DType::F32, {2, 3}}, {1, DType::F32, {}}};
  step.results = {{2, DType::F32, {2, 3}}};
  step.attrs = {std::string("(a, b; c=1) \"d\": e")};
  step.workspace = 6;
  step.stream = 1;
  step.waits = {2, 0};
  step.signal = 1;
  step.path = "layers.0.attention";
  step.phase = Phase::Backward;
  step.recomputed = true;
  step.flops = 1.5e12;
  step.seconds = 1e-6 / 3;
  plan.programs[0] = {step};
  step.path = "";
  step.phase = Phase::Optimizer;
  plan.programs[2] = {step, step};

  const std::string text = print_plan(plan);
  const Plan parsed = parse_plan(text);
  EXPECT_EQ(print_plan(parsed), text);
  EXPECT_EQ(parsed.name, plan.name);
  EXPECT_EQ(parsed.mesh, plan.mesh);
  EXPECT_EQ(parsed.streams, plan.streams);
  EXPECT_EQ(parsed.buffers[6].name, plan.buffers[6].name);
  EXPECT_EQ(parsed.buffers[5].last, 10);
  EXPECT_EQ(parsed.shared, plan.shared);
  EXPECT_EQ(parsed.buffers[4].shared, 1);
  EXPECT_EQ(parsed.buffers[5].shared, -1);
  EXPECT_EQ(parsed.states[0].tensor, plan.states[0].tensor);
  EXPECT_EQ(parsed.states[0].state, plan.states[0].state);
  const Step& back = parsed.programs[0].at(0);
  EXPECT_EQ(back.attrs, step.attrs);
  EXPECT_EQ(back.waits, step.waits);
  EXPECT_EQ(back.seconds, step.seconds);
  EXPECT_EQ(back.path, "layers.0.attention");
  EXPECT_EQ(parsed.programs[2].at(1).phase, Phase::Optimizer);
  EXPECT_EQ(parsed.programs[2].at(1).path, "");
}

TEST(PlanText, ShowsAStepAsOneReadableLine) {
  const std::string text = print_plan(tiny_plan());
  const auto shows = [&](std::string_view line) {
    EXPECT_NE(text.find("\n" + std::string(line) + "\n"), std::string::npos) << line << "\n"
                                                                             << text;
  };
  shows("buffer b0 param 256 at 0 persistent \"w\"");
  shows("buffer b23 activation 4 at 2560 last 10..11 \"c\"");
  shows("param \"w\" b0: f32[8,8]");
  shows(
      "step 6 compute matmul.plain(b5: f32[4,8], b18: f32[4,8]; ta=true, tb=false, out=\"\") -> "
      "b20: f32[8,8] workspace b21 flops 512 seconds 1.512e-06 # layers.0 bwd");
  shows("program micro");
}

TEST(PlanText, HashFollowsEveryField) {
  const Plan plan = tiny_plan();
  EXPECT_EQ(hash(plan), hash(tiny_plan()));
  Plan other = plan;
  other.programs[1].back().seconds *= 2;
  EXPECT_NE(hash(plan), hash(other));
  other = plan;
  other.buffers.back().name += "x";
  EXPECT_NE(hash(plan), hash(other));
}

TEST(PlanText, RefusesWhatItCouldNotHavePrinted) {
  const auto refuses = [](const std::string& text, const std::string& message) {
    expect_user_error(ExitCode::InputFile, message, [&] { parse_plan(text); });
  };
  refuses("", "line 1: the text has no plan");
  refuses("buffer b0", "line 1: \"buffer\" found, expected a plan that starts with \"plan NAME\"");
  refuses("plan p\nbuffer b0 activation 4 at 0 shared dp persistent \"w\"",
          "line 2: a buffer is in the shared space of \"dp\", which has no line \"shared\"");
  refuses("plan p\nbuffers 3", "line 2: unknown line \"buffers\"");
  refuses("plan p\nbuffer b1 param 4 at 0 persistent \"w\"",
          "line 2: buffer b1 found, expected b0");
  refuses("plan p\nbuffer b0 weight 4 at 0 persistent \"w\"",
          "line 2: unknown kind of buffer \"weight\"");
  refuses("plan p\nbuffer b0 param 4 at 0 persistent w",
          "line 2: \"w\" found where a string in double quotes is expected");
  refuses("plan p\nbuffer b0 param 4 at 0 persistent \"w\" 7",
          "line 2: \"7\" found where the end of the line is expected");
  refuses("plan p\nevents", "line 2: the line ends where a whole number is expected");
  refuses("plan p\nevents 99999999999999999999",
          "line 2: \"99999999999999999999\" found where a whole number is expected");
  refuses("plan p\nprogram first", "line 2: \"first\" is not micro, last or eval");
  refuses("plan p\nstreams s\nstep 0 s gelu.k(b0: f32[1]) -> b1: f32[1] # fwd",
          "line 3: found a step before the first \"program\"");
  const std::string head = "plan p\nstreams s\nprogram last\n";
  refuses(head + "step 1 s gelu.k(b0: f32[1]) -> b1: f32[1] # fwd",
          "line 4: step 1 found, expected step 0");
  refuses(head + "step 0 t gelu.k(b0: f32[1]) -> b1: f32[1] # fwd", "line 4: unknown stream \"t\"");
  refuses(head + "step 0 s gelu(b0: f32[1]) -> b1: f32[1] # fwd",
          "line 4: \"gelu\" is not op.kernel");
  refuses(head + "step 0 s gelo.k(b0: f32[1]) -> b1: f32[1] # fwd", "line 4: unknown op \"gelo\"");
  refuses(head + "step 0 s gelu.k(b0: f32[1]; eps=1) -> b1: f32[1] # fwd",
          "line 4: gelu has no attribute \"eps\"");
  refuses(head + "step 0 s cast.k(b0: f32[1]) -> b1: f32[1] # fwd",
          "line 4: cast needs the attribute \"dtype\"");
  refuses(head + "step 0 s gelu.k(b0: f32[1]) -> b1: f32[1] now # fwd",
          "line 4: unknown part \"now\" of a step");
  refuses(head + "step 0 s gelu.k(b0: f32[1]) -> b1: f32[1] # layers.0 forward",
          "line 4: \"forward\" is not fwd, bwd or opt");
  refuses(head + "step 0 s gelu.k(b0: f32[1]) -> b1: f32[1]",
          "line 4: the line ends where a name is expected");
}

}  // namespace
}  // namespace weft
