// Compiles every config of tests/golden/plans and compares the plan's summary with the committed
// one. A file NAME.ranks next to NAME.toml holds the number of ranks, else there is one. With
// --update the summaries are rewritten with what the compiler does now; a reviewer then reads the
// diff.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "compile/compile.h"
#include "compile/config_choices.h"
#include "config/derived.h"
#include "config/load.h"
#include "config/validate.h"
#include "graph/timeline.h"
#include "plan/check.h"
#include "plan/lower.h"
#include "plan/summary.h"
#include "plan/text.h"
#include "runtime/device.h"
#include "support/golden_files.h"
#include "support/read_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool update = false;

int64_t ranks_of(fs::path config) {
  const fs::path file = config.replace_extension(".ranks");
  return fs::exists(file) ? std::stoll(read_file(file)) : 1;
}

Compiled compile_file(const fs::path& path) {
  const Config config = load_config(path, {});
  const int64_t ranks = ranks_of(path);
  validate(config, ranks, config_choices());
  return compile(config, {.ranks = ranks});
}

class PlanGolden : public testing::TestWithParam<fs::path> {};

TEST_P(PlanGolden, SummaryIsTheCommittedOne) {
  fs::path expected = GetParam();
  expected.replace_extension(".summary");
  const std::string actual = to_string(summarize(compile_file(GetParam())));
  if (update) {
    std::ofstream(expected, std::ios::binary) << actual;
    return;
  }
  EXPECT_EQ(actual, read_file(expected))
      << "run plans_golden_test --update and review the difference";
}

TEST_P(PlanGolden, TheSameConfigGivesTheSamePlanBytes) {
  const Plan plan = compile_file(GetParam()).plan;
  const std::string text = print_plan(plan);
  EXPECT_TRUE(text == print_plan(compile_file(GetParam()).plan));
  const Plan parsed = parse_plan(text);
  EXPECT_TRUE(text == print_plan(parsed));
  EXPECT_NO_THROW(check_plan(parsed));
}

// Passes minimise what the plan reports: the same time model, evaluated on the graph and on the
// lowered steps. They may add in a different order, so doubles differ in the last digits.
TEST_P(PlanGolden, TheGraphTakesAsLongAsItsPlan) {
  const Config config = load_config(GetParam(), {});
  const int64_t ranks = ranks_of(GetParam());
  const int64_t micro_batches = accumulation_steps(config, degrees_of(config, ranks));
  const DeviceSpec device = device_of_rank(device_spec_of(config), ranks);
  BuiltModel model = build_model(
      resolve_model(config.model, 0),
      {.batch = config.training.local_batch_size * ranks, .seq_len = config.training.seq_len});
  run_passes(model.graph, pipeline(), config, device,
             run_options(config, Goal::Train, mesh_of(config, ranks), "train"));
  std::vector<ProgramSource> sources = {{ProgramKind::Last, &model.graph}};
  if (micro_batches > 1) sources.push_back({ProgramKind::Micro, &model.graph});
  const Backend& backend = find_backend(config.device.backend);
  const Plan plan =
      lower(sources, {.backend = backend.name, .kernels = backend.kernels(), .device = device});
  const PlanTime graph =
      estimate_step(model.graph, model.graph.nodes(), device, micro_batches).time;
  const PlanTime steps = step_time(plan, micro_batches);
  EXPECT_NEAR(graph.seconds / steps.seconds, 1, 1e-12);
  EXPECT_NEAR(graph.compute_seconds / steps.compute_seconds, 1, 1e-12);
  EXPECT_NEAR(graph.collective_seconds, steps.collective_seconds, 1e-12 * steps.seconds);
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanGolden, testing::ValuesIn(golden_files("plans", ".toml")),
                         [](const auto& golden) { return golden.param.stem().string(); });

TEST(PlanGoldens, EveryFileHasItsConfig) {
  for (const auto& entry : fs::directory_iterator(WEFT_TESTS_DIR "/golden/plans")) {
    if (entry.path().extension() == ".toml") continue;
    fs::path config = entry.path();
    EXPECT_TRUE(fs::exists(config.replace_extension(".toml"))) << entry.path();
  }
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) weft::update |= std::string_view(argv[i]) == "--update";
  return RUN_ALL_TESTS();
}
