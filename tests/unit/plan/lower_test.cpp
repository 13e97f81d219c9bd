#include "plan/lower.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/text.h"
#include "support/tiny_plan.h"
#include "support/user_error.h"

namespace weft {
namespace {

std::vector<std::string> ops(const Plan& plan, ProgramKind program) {
  std::vector<std::string> names;
  for (const Step& step : plan.program(program)) names.push_back(step.op);
  return names;
}

const Step& find_step(const Plan& plan, ProgramKind program, std::string_view op) {
  for (const Step& step : plan.program(program)) {
    if (step.op == op) return step;
  }
  throw InternalError(cat("no step ", op));
}

const Buffer& buffer_named(const Plan& plan, std::string_view name) {
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.name == name) return buffer;
  }
  throw InternalError(cat("no buffer ", name));
}

int64_t bound(const std::vector<Binding>& bindings, std::string_view name) {
  for (const Binding& binding : bindings) {
    if (binding.name == name) return binding.tensor.buffer;
  }
  return -1;
}

TEST(Lower, MicroLeavesOutTheOptimizerAndLastDoesNot) {
  const Plan plan = tiny_plan();
  const std::vector<std::string> micro = {"matmul", "gelu",      "add",    "square_sum",
                                          "norm",   "gelu_grad", "matmul", "accumulate"};
  std::vector<std::string> last = micro;
  last.insert(last.end(), {"square_sum", "norm", "clip", "adamw"});
  EXPECT_EQ(ops(plan, ProgramKind::Micro), micro);
  EXPECT_EQ(ops(plan, ProgramKind::Last), last);
  EXPECT_EQ(ops(plan, ProgramKind::Eval).size(), 5u);
}

TEST(Lower, MicroDropsWhatOnlyTheOptimizerNeeds) {
  const Graph graph = parse_graph(R"(graph g {
  %x = input "x" : f32[8]
  %lr = input "lr" : f32[8]
  %a = gelu(%x) : f32[8]  # fwd
  %unused = add(%a, %lr) : f32[8]  # bwd
  %b = gelu(%unused) : f32[8]  # opt
  return a=%a, b=%b
}
)");
  const Plan plan = lower_with({{ProgramKind::Micro, &graph}}, plain_kernels());
  EXPECT_EQ(ops(plan, ProgramKind::Micro), std::vector<std::string>{"gelu"});
  EXPECT_EQ(bound(plan.inputs, "lr"), -1);
  EXPECT_EQ(bound(plan.outputs, "b"), -1);
  EXPECT_NE(bound(plan.outputs, "a"), -1);
}

TEST(Lower, SourcesOfTheSameNameAreOneBuffer) {
  const Plan plan = tiny_plan();
  const int64_t w = bound(plan.params, "w");
  for (const ProgramKind kind : {ProgramKind::Micro, ProgramKind::Last, ProgramKind::Eval}) {
    EXPECT_EQ(plan.program(kind).front().operands.at(1).buffer, w);
  }
  EXPECT_EQ(plan.params.size(), 1u);
  EXPECT_EQ(plan.inputs.size(), 3u);
  EXPECT_EQ(plan.states.size(), 4u);
  EXPECT_EQ(plan.outputs.size(), 2u);
}

TEST(Lower, RefusesProgramsThatDisagreeAboutASource) {
  const Graph step = parse_graph(kTinyStep);
  const Graph eval = parse_graph(R"(graph tiny {
  %x = input "x" : f32[2,8]
  %y = gelu(%x) : f32[2,8]
  return y=%y
}
)");
  try {
    lower_with({{ProgramKind::Last, &step}, {ProgramKind::Eval, &eval}}, plain_kernels());
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("x is f32[2,8] in one program, f32[4,8] in another"),
              std::string::npos)
        << error.what();
  }
}

TEST(Lower, ResultsThatOverwriteTakeTheOperandsBuffer) {
  const Plan plan = tiny_plan();
  const Step& update = find_step(plan, ProgramKind::Last, "adamw");
  EXPECT_EQ(update.results[0].buffer, bound(plan.params, "w"));
  EXPECT_EQ(update.results[1].buffer, bound(plan.states, "m.w"));
  EXPECT_EQ(find_state(plan, {StateRole::FirstMoment, "w"})->name, "m.w");
  EXPECT_EQ(find_state(plan, {StateRole::UpdateCount})->name, "adam.count");
  EXPECT_EQ(find_state(plan, {StateRole::LowCopy, "w"}), nullptr);
  EXPECT_EQ(update.results[2].buffer, bound(plan.states, "v.w"));
  EXPECT_EQ(update.operands[1].buffer, bound(plan.states, "grad.w"));
  const Step& clip = find_step(plan, ProgramKind::Last, "clip");
  EXPECT_EQ(clip.results[1].buffer, bound(plan.states, "adam.count"));
}

TEST(Lower, ElementwiseResultsTakeADyingOperandsBuffer) {
  const Plan plan = tiny_plan();
  // h is needed by the backward: gelu gets a new buffer, which add then reuses.
  const std::vector<Step>& last = plan.program(ProgramKind::Last);
  EXPECT_NE(last[1].results[0].buffer, last[1].operands[0].buffer);
  EXPECT_EQ(last[2].results[0].buffer, last[2].operands[0].buffer);
  // In evaluation nothing needs h, so gelu reuses its buffer.
  const std::vector<Step>& eval = plan.program(ProgramKind::Eval);
  EXPECT_EQ(eval[1].results[0].buffer, eval[1].operands[0].buffer);
  EXPECT_EQ(eval[2].results[0].buffer, eval[1].results[0].buffer);
}

TEST(Lower, ElementwiseResultsOfAnotherSizeDoNotTakeTheBuffer) {
  const Graph graph = parse_graph(R"(graph g {
  %x = input "x" : f32[8]
  %a = gelu(%x) : f32[8]
  %b = cast(%a; dtype=bf16) : bf16[8]
  %c = gelu(%b) : bf16[8]
  %d = gelu(%c) : bf16[8]
  return d=%d
}
)");
  const Plan plan = lower_with({{ProgramKind::Eval, &graph}}, plain_kernels());
  const std::vector<Step>& steps = plan.program(ProgramKind::Eval);
  EXPECT_NE(steps[0].results[0].buffer, steps[0].operands[0].buffer) << "inputs are kept";
  EXPECT_NE(steps[1].results[0].buffer, steps[1].operands[0].buffer) << "half the size";
  EXPECT_EQ(steps[2].results[0].buffer, steps[2].operands[0].buffer);
  EXPECT_EQ(steps[3].results[0].buffer, bound(plan.outputs, "d")) << "an output has its own";
}

TEST(Lower, BufferKindsSayWhatMemoryIsFor) {
  const Plan plan = tiny_plan();
  EXPECT_EQ(buffer_named(plan, "w").kind, BufferKind::Param);
  EXPECT_EQ(buffer_named(plan, "m.w").kind, BufferKind::Optimizer);
  EXPECT_EQ(buffer_named(plan, "adam.count").kind, BufferKind::Optimizer);
  EXPECT_EQ(buffer_named(plan, "grad.w").kind, BufferKind::Gradient);
  EXPECT_EQ(buffer_named(plan, "dw").kind, BufferKind::Gradient);
  EXPECT_EQ(buffer_named(plan, "h").kind, BufferKind::Activation);
  EXPECT_EQ(buffer_named(plan, "x").kind, BufferKind::Input);
  EXPECT_EQ(buffer_named(plan, "loss").kind, BufferKind::Output);
  EXPECT_EQ(buffer_named(plan, "h.workspace").kind, BufferKind::Workspace);
}

TEST(Lower, LifetimesSpanFromDefinitionToLastUse) {
  const Plan plan = tiny_plan();
  const auto h = std::find_if(plan.buffers.begin(), plan.buffers.end(), [](const Buffer& b) {
    return b.name == "h" && b.program == ProgramKind::Last;
  });
  ASSERT_NE(h, plan.buffers.end());
  EXPECT_EQ(h->first, 0);
  EXPECT_EQ(h->last, 5);
  const Buffer& coefficient = buffer_named(plan, "c");
  EXPECT_EQ(coefficient.first, 10);
  EXPECT_EQ(coefficient.last, 11);
}

TEST(Lower, ResultsNobodyReadsHaveABufferForTheirStep) {
  const Graph graph = parse_graph(R"(graph g {
  %x = input "x" : f32[2,8]
  %w = param "w" : f32[8]
  %y, %rstd = rms_norm(%x, %w) : f32[2,8], f32[2]
  return y=%y
}
)");
  const Plan plan = lower_with({{ProgramKind::Eval, &graph}}, plain_kernels());
  const Buffer& rstd = buffer_named(plan, "rstd");
  EXPECT_FALSE(rstd.persistent);
  EXPECT_EQ(rstd.first, 0);
  EXPECT_EQ(rstd.last, 0);
}

TEST(Lower, StepsCarryCostPathAndPhase) {
  const Plan plan = tiny_plan();
  const Step& step = plan.program(ProgramKind::Last).front();
  EXPECT_EQ(step.kernel, "plain");
  EXPECT_EQ(step.path, "layers.0");
  EXPECT_EQ(step.phase, Phase::Forward);
  EXPECT_EQ(step.flops, 2.0 * 4 * 8 * 8);
  // 4*8 + 8*8 + 4*8 floats are 512 bytes, read and written at 1e9 bytes per second.
  EXPECT_DOUBLE_EQ(step.seconds, 512 / 1e9 + 1e-6);
  EXPECT_EQ(plan.program(ProgramKind::Last)[5].phase, Phase::Backward);
}

TEST(Lower, UsesLocalShapes) {
  const Graph graph = parse_graph(R"(graph g(mesh dp=4) {
  %x = input "x" : f32[8,8] @S(0:dp)
  %y = gelu(%x) : f32[8,8] @S(0:dp)
  return y=%y
}
)");
  const Plan plan = lower_with({{ProgramKind::Eval, &graph}}, plain_kernels());
  EXPECT_EQ(plan.program(ProgramKind::Eval)[0].results[0].shape, (Shape{2, 8}));
  EXPECT_EQ(plan.buffers[0].bytes, 64);
  EXPECT_EQ(plan.mesh.ranks(), 4);
}

TEST(Lower, AnOutputMayBeASource) {
  const Graph graph = parse_graph(R"(graph g {
  %x = input "x" : f32[8]
  %y = gelu(%x) : f32[8]
  return same=%x, y=%y, again=%y
}
)");
  const Plan plan = lower_with({{ProgramKind::Eval, &graph}}, plain_kernels());
  EXPECT_EQ(bound(plan.outputs, "same"), bound(plan.inputs, "x"));
  EXPECT_EQ(bound(plan.outputs, "again"), bound(plan.outputs, "y"));
}

constexpr std::string_view kGathers = R"(graph g(mesh dp_shard=2) {
  %b = bucket ["p"] : f32[2048] @F(dp_shard)
  %p.full = state "full.p" : bf16[2048]
  %w = all_gather(%b; axis="dp_shard", types=["bf16[2048]"]) : bf16[2048]
  %x = gelu(%w) : bf16[2048]
  %w.again = all_gather(%b; axis="dp_shard", types=["bf16[2048]"]) : bf16[2048]
  %y = add(%w.again, %x) : bf16[2048]
  %p.new = all_gather(%b, %p.full; axis="dp_shard", types=["bf16[2048]"]) : bf16[2048]
  return y=%y
}
)";

// Kernels that may gather into shared memory.
std::vector<Kernel> shared_kernels() {
  std::vector<Kernel> kernels = plain_kernels();
  for (Kernel& kernel : kernels) kernel.shared_results = kernel.op == "all_gather";
  return kernels;
}

TEST(Lower, GatheredWeightsLieInSharedMemoryOncePerHost) {
  const Graph graph = parse_graph(kGathers);
  const std::vector<ProgramSource> sources = {{ProgramKind::Last, &graph}};
  DeviceSpec device = tiny_device();
  device.ranks_share_memory = true;
  const std::vector<Kernel> kernels = shared_kernels();
  const Plan plan = lower(sources, {.backend = "test", .kernels = kernels, .device = device});
  EXPECT_EQ(plan.shared, (std::vector<SharedSpace>{{"dp_shard", 4096}}));
  EXPECT_EQ(buffer_named(plan, "w").shared, 0);
  EXPECT_EQ(buffer_named(plan, "w").offset, 0);
  EXPECT_EQ(buffer_named(plan, "w.again").offset, 0);
  EXPECT_EQ(buffer_named(plan, "x").shared, -1);
  EXPECT_EQ(buffer_named(plan, "full.p").shared, -1);  // kept between steps, one per rank
  EXPECT_EQ(rank_bytes(plan), plan.arena_bytes + 2048);
  EXPECT_EQ(print_plan(parse_plan(print_plan(plan))), print_plan(plan));
}

TEST(Lower, GatheredWeightsAreEachRanksOwnWhereNothingIsShared) {
  const Graph graph = parse_graph(kGathers);
  const std::vector<ProgramSource> sources = {{ProgramKind::Last, &graph}};
  const DeviceSpec apart = tiny_device();
  DeviceSpec one = tiny_device();
  one.ranks_share_memory = true;
  DeviceSpec hosts = one;
  hosts.ranks_per_host = 1;
  const std::vector<Kernel> copying = plain_kernels();
  const std::vector<Kernel> sharing = shared_kernels();
  const std::vector<LowerOptions> all = {
      {.backend = "test", .kernels = sharing, .device = apart},
      {.backend = "test", .kernels = sharing, .device = hosts},
      {.backend = "test", .kernels = copying, .device = one},
      {.backend = "test", .kernels = sharing, .device = one, .shared_gather = false}};
  for (const LowerOptions& options : all) {
    const Plan plan = lower(sources, options);
    EXPECT_TRUE(plan.shared.empty());
    EXPECT_EQ(buffer_named(plan, "w").shared, -1);
    EXPECT_EQ(rank_bytes(plan), plan.arena_bytes);
  }
}

// Ranks 3 to 5 are on two hosts of 4.
TEST(Lower, GatheredWeightsAreEachRanksOwnWhereAGroupStraddlesHosts) {
  std::string text(kGathers);
  text.replace(text.find("dp_shard=2"), 10, "dp_replicate=2, dp_shard=3");
  const Graph graph = parse_graph(text);
  const std::vector<ProgramSource> sources = {{ProgramKind::Last, &graph}};
  const std::vector<Kernel> kernels = shared_kernels();
  DeviceSpec device = tiny_device();
  device.ranks_share_memory = true;
  device.ranks_per_host = 6;
  const LowerOptions options{.backend = "test", .kernels = kernels, .device = device};
  EXPECT_EQ(lower(sources, options).shared.size(), 1U);
  device.ranks_per_host = 4;
  EXPECT_TRUE(lower(sources, options).shared.empty());
}

TEST(Lower, NamesTheNodeWithoutAKernel) {
  std::vector<Kernel> kernels = plain_kernels();
  std::erase_if(kernels, [](const Kernel& kernel) { return kernel.op == "gelu_grad"; });
  const Graph step = parse_graph(kTinyStep);
  expect_user_error(ExitCode::Config,
                    "no test kernel for gelu_grad %dh: the backend has none for this op", [&] {
                      lower_with({{ProgramKind::Last, &step}}, kernels);
                    });
}

TEST(Lower, IsDeterministic) {
  EXPECT_EQ(print_plan(tiny_plan()), print_plan(tiny_plan()));
}

constexpr std::string_view kAlongADim = R"(graph g(mesh cp=2, tp=2) {
  %x = input "x" : f32[6,8] @S(0:cp) @S(1:tp)
  %c = input "c" : i32[]
  %h = gelu(%x) : f32[6,8] @S(0:cp) @S(1:tp)
  %f = all_gather(%h; axis="tp", dim=1) : f32[6,8] @S(0:cp)
  %s = take_shard(%f, %c; axis="tp", dim=0) : f32[6,8] @S(0:cp) @S(0:tp)
  %p = input "p" : f32[6,8] @P(cp) @P(tp)
  %d = gelu(%p) : f32[6,8] @P(cp) @P(tp)
  %r = reduce_scatter(%d; axis="cp+tp", dim=0) : f32[6,8] @S(0:cp) @S(0:tp)
  return s=%s, r=%r
}
)";

TEST(Lower, CollectivesAlongADimHaveOrdinaryBuffers) {
  const Graph graph = parse_graph(kAlongADim);
  std::vector<Kernel> kernels = plain_kernels();
  for (Kernel& kernel : kernels) kernel.shared_results = kernel.op == "all_gather";
  DeviceSpec device = tiny_device();
  device.ranks_share_memory = true;
  const std::vector<ProgramSource> sources = {{ProgramKind::Last, &graph}};
  const Plan plan = lower(sources, {.backend = "test", .kernels = kernels, .device = device});
  EXPECT_TRUE(plan.shared.empty());
  const Step& gather = find_step(plan, ProgramKind::Last, "all_gather");
  EXPECT_EQ(gather.operands.at(0).shape, (Shape{3, 4}));
  EXPECT_EQ(gather.results.at(0).shape, (Shape{3, 8}));
  const Buffer& full = plan.buffers[static_cast<size_t>(gather.results.at(0).buffer)];
  EXPECT_EQ(full.kind, BufferKind::Activation);
  EXPECT_EQ(full.bytes, 3 * 8 * 4);
  EXPECT_EQ(find_step(plan, ProgramKind::Last, "take_shard").results.at(0).shape, (Shape{2, 8}));
  const Step& scatter = find_step(plan, ProgramKind::Last, "reduce_scatter");
  EXPECT_EQ(scatter.results.at(0).shape, (Shape{2, 8}));
  const Buffer& summed = plan.buffers[static_cast<size_t>(scatter.operands.at(0).buffer)];
  EXPECT_EQ(summed.bytes, 6 * 8 * 4);
}

constexpr std::string_view kReduction = R"(graph g(mesh dp_shard=2) {
  %g = input "g" : f32[2048] @P(dp_shard)
  %x = input "x" : f32[8]
  %f = reduce_scatter_start(%g; axis="dp_shard") : future<f32[2048] @F(dp_shard)>
  %a = gelu(%x) : f32[8]
  %b = gelu(%a) : f32[8]
  %y = wait(%f) : f32[2048] @F(dp_shard)
  %c = gelu(%b) : f32[8]
  return y=%y, c=%c
}
)";

// Two kernels for sums: one with an unspecified order, one that needs memory for received data.
std::vector<Kernel> summing_kernels() {
  std::vector<Kernel> kernels = plain_kernels();
  std::erase_if(kernels, [](const Kernel& kernel) { return kernel.op == "reduce_scatter"; });
  kernels.push_back({.op = "reduce_scatter", .name = "any", .any_order = true});
  kernels.push_back({.op = "reduce_scatter",
                     .name = "ordered",
                     .group_workspace = [](const Call& call, int64_t ranks) {
                       return (ranks - 1) * call.results.at(0).bytes();
                     }});
  return kernels;
}

TEST(Lower, OrderedSumsLeaveOutKernelsThatPromiseNoOrder) {
  const Graph graph = parse_graph(kReduction);
  const std::vector<ProgramSource> sources = {{ProgramKind::Last, &graph}};
  const std::vector<Kernel> kernels = summing_kernels();
  const DeviceSpec device = tiny_device();
  LowerOptions options{.backend = "test", .kernels = kernels, .device = device};
  EXPECT_EQ(find_step(lower(sources, options), ProgramKind::Last, "reduce_scatter").kernel, "any");
  options.ordered_sums = true;
  const Plan plan = lower(sources, options);
  const Step& step = find_step(plan, ProgramKind::Last, "reduce_scatter");
  EXPECT_EQ(step.kernel, "ordered");
  // In use on its own stream until the wait: live during both steps before it.
  const Buffer& workspace = plan.buffers.at(static_cast<size_t>(step.workspace));
  EXPECT_EQ(workspace.bytes, 4096);
  EXPECT_EQ(workspace.first, 0);
  EXPECT_EQ(workspace.last, 2);
}

}  // namespace
}  // namespace weft
