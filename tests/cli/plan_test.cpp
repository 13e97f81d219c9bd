// weft plan: any preset at once, on a machine that could never hold it.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/workspace.h"
#include "model/model.h"
#include "plan/text.h"

namespace weft {
namespace {

// What the command measured: starting a process is not its work.
double compile_milliseconds(const ProcessResult& result) {
  const size_t at = result.output.find("compiled in");
  return at == std::string::npos ? 1e9 : std::stod(result.output.substr(at + 11));
}

TEST(Plan, TheDefaultsAgree) {
  const Workspace work;
  work.folder().write("empty.toml", "");
  const ProcessResult result = work.run_ok({"plan", "empty.toml"});
  EXPECT_NE(result.output.find("model         gpt2 tiny: "), std::string::npos) << result.output;
}

TEST(Plan, EveryPresetIsPlannedAtOnceWithoutAllocatingIt) {
  const Workspace work;
  work.folder().write("plan.toml", "");
  for (const ModelDef* model : all_models()) {
    for (const ModelSpec& preset : model->presets()) {
      const std::string length = std::to_string(std::min<int64_t>(preset.max_seq_len, 1024));
      const auto plan = [&] {
        return work.run_ok({"plan", "plan.toml", "--model.name=" + std::string(model->name),
                            "--model.flavor=" + preset.flavor, "--training.seq_len=" + length,
                            "--device.backend=null", "--no-fit"});
      };
      const ProcessResult result = plan();
      EXPECT_NE(result.output.find("peak"), std::string::npos) << result.output;
      // The weights of "124M" alone are 0.5 GB.
      EXPECT_LT(result.peak_bytes, int64_t{200} << 20) << preset.flavor;
      double milliseconds = compile_milliseconds(result);
      // Other programs may take the core for a while.
      for (int again = 0; again < 4 && milliseconds >= 1000; ++again) {
        milliseconds = std::min(milliseconds, compile_milliseconds(plan()));
      }
      EXPECT_LT(milliseconds, 1000) << preset.flavor;
    }
  }
  EXPECT_EQ(work.folder().names(), (std::vector<std::string>{"plan.toml", "run.toml"}));
}

TEST(Plan, TheTextOfAPlanReadsBack) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.run_ok({"plan", "run.toml", "--text", "plan.txt", "--passes"});
  EXPECT_NE(result.output.find("autodiff"), std::string::npos) << result.output;
  const std::string text = work.folder().read("plan.txt");
  EXPECT_EQ(print_plan(parse_plan(text)), text);
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "out"));
}

TEST(Plan, TheSameConfigGivesTheSameBytes) {
  const Workspace work;
  work.prepare_data();
  work.run_ok({"plan", "run.toml", "--text", "one.txt"});
  work.run_ok({"plan", "run.toml", "--text", "two.txt"});
  EXPECT_EQ(work.folder().read("one.txt"), work.folder().read("two.txt"));
}

TEST(Plan, SaysWhetherTheMachineHoldsIt) {
  const Workspace work;
  work.folder().write("plan.toml", "[model]\nname = \"llama\"\nflavor = \"405B\"\n");
  const ProcessResult result = work.run_ok({"plan", "plan.toml"});
  EXPECT_NE(result.output.find("fits          no"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("\nto fit  "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find(" needs "), std::string::npos) << result.output;
  const ProcessResult brief = work.run_ok({"plan", "plan.toml", "--no-fit"});
  EXPECT_EQ(brief.output.find("to fit"), std::string::npos) << brief.output;
}

TEST(Plan, SaysMfuWhereTheSpecHasAPeak) {
  const Workspace work;
  work.folder().write("plan.toml", "[model]\nflavor = \"124M\"\n[training]\nseq_len = 1024\n");
  const std::string cpu = work.run_ok({"plan", "plan.toml"}).output;
  EXPECT_EQ(cpu.find("mfu"), std::string::npos) << cpu;
  const std::string gpu = work.run_ok({"plan", "plan.toml", "--device.spec=h100"}).output;
  EXPECT_NE(gpu.find(" % of 67 TFLOP/s (h100)\n"), std::string::npos) << gpu;
}

TEST(Plan, SaysWhatARankCommunicates) {
  const Workspace work;
  work.folder().write("plan.toml",
                      "[model]\nname = \"gpt2\"\nflavor = \"tiny\"\n[training]\nseq_len = 64\n");
  const std::string one = work.run_ok({"plan", "plan.toml"}).output;
  EXPECT_NE(one.find("\nstep time  "), std::string::npos) << one;
  EXPECT_EQ(one.find("collectives"), std::string::npos) << one;
  const std::string two = work.run_ok({"plan", "plan.toml", "--ranks", "2"}).output;
  for (const char* line :
       {"\nbuckets  ", "collectives all_gather dp_shard=2", "reduce_scatter",
        "copied for packing 0 B\n", "\ncomputing  ", "\nexposed comm  ", "\nthroughput  "}) {
    EXPECT_NE(two.find(line), std::string::npos) << line << " in\n" << two;
  }
}

}  // namespace
}  // namespace weft
