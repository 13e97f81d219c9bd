// weft bench: what it prints; the numbers themselves need a quiet machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/machine.h"
#include "base/text.h"
#include "cli/workspace.h"
#include "config/device_spec.h"
#include "config/load.h"

namespace weft {
namespace {

int64_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(Bench, CommComparesEachCollectiveWithCopies) {
  const Workspace work;
  const ProcessResult result =
      work.run_ok({"bench", "comm", "--ranks", "2", "--mib", "1,2", "--repeats", "1"});
  EXPECT_EQ(lines(result.output), 6) << result.output;
  for (const char* name : {"all_gather  ", "all_gather shared", "reduce_scatter"}) {
    EXPECT_NE(result.output.find(name), std::string::npos) << result.output;
  }
}

TEST(Bench, RanksComparesThemWithOneProcess) {
  const Workspace work;
  work.folder().write("small.toml", "[model]\nflavor = \"tiny\"\n\n[training]\nseq_len = 32\n");
  const ProcessResult result =
      work.run_ok({"bench", "ranks", "small.toml", "--steps", "1", "--repeats", "1"});
  EXPECT_EQ(lines(result.output), 3) << result.output;
  for (const char* name : {"1 process, 2 threads ", "2 ranks  ", "2 ranks, a copy each "}) {
    EXPECT_NE(result.output.find(name), std::string::npos) << result.output;
  }
}

TEST(Bench, RanksCountTheTokensOfFullSteps) {
  const Workspace work;
  work.folder().write("small.toml",
                      "[training]\nseq_len = 32\nlocal_batch_size = 2\nglobal_batch_size = 8\n");
  const ProcessResult result =
      work.run_ok({"bench", "ranks", "small.toml", "--steps", "1", "--repeats", "1"});
  int found = 0;
  for (const std::string& line : split(result.output, '\n')) {
    const size_t at = line.find("step ");
    if (at == std::string::npos) continue;
    double milliseconds = 0, rate = 0;
    ASSERT_EQ(std::sscanf(line.c_str() + at, "step %lf ms %lf tok/s", &milliseconds, &rate), 2);
    EXPECT_NEAR(rate * milliseconds * 1e-3, 8 * 32, 2.56) << line;  // rounding of printed numbers
    ++found;
  }
  EXPECT_EQ(found, 3) << result.output;
}

TEST(Bench, RanksTakeTheVocabularyOfTheData) {
  const Workspace work;
  work.folder().write("text.txt", std::string(400, 'a'));
  work.run_ok({"data", "prepare", "text.txt", "--output", "data", "--tokenizer", "byte"});
  work.folder().write("small.toml",
                      "[model]\nflavor = \"tiny\"\nvocab_size = -1\n\n[training]\nseq_len = 32\n"
                      "dataset = \"file\"\ndataset_path = \"data/train.bin\"\n");
  const ProcessResult result =
      work.run_ok({"bench", "ranks", "small.toml", "--steps", "1", "--repeats", "1"});
  EXPECT_EQ(lines(result.output), 3) << result.output;
}

TEST(Bench, OpsComparesEachStepWithItsRoofline) {
  const Workspace work;
  work.folder().write("small.toml", "[model]\nflavor = \"tiny\"\n\n[training]\nseq_len = 32\n");
  const ProcessResult result = work.run_ok({"bench", "ops", "small.toml", "--repeats", "1"});
  for (const char* part : {"GFLOP/s", "matmul.tiled fwd f32[8,32,64]", "adamw.blocks opt", "floor ",
                           "device spec cpu"}) {
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  }
}

// A line of bench ops, up to its roofline.
struct OpsLine {
  double percent = 0;
  char mark = ' ';
  std::string what;
};

struct OpsOutput {
  std::vector<OpsLine> lines;
  std::string text;
  bool has(const std::string& note) const { return text.find(note) != std::string::npos; }
};

// Times the tiny model on a machine that matches its spec except for one key.
OpsOutput bench_ops(const std::string& key, double value) {
  const Workspace work;
  work.folder().write("small.toml", "[model]\nflavor = \"tiny\"\n\n[training]\nseq_len = 32\n");
  DeviceSpec spec = load_device_spec(parse_config("", "test", {}), "cpu");
  spec.name = "made up";
  spec.matmul_flops_f32 = spec.vector_flops = spec.memory_bandwidth = 1e18;
  (key == "memory_bandwidth" ? spec.memory_bandwidth : spec.matmul_flops_f32) = value;
  work.folder().write("spec.toml", device_spec_to_toml(spec));
  const ProcessResult result =
      work.run_ok({"bench", "ops", "small.toml", "--repeats", "1", "--device.spec=spec.toml"});
  OpsOutput output{.lines = {}, .text = result.output};
  for (const std::string& line : split(result.output, '\n')) {
    OpsLine found;
    double skipped = 0;
    int at = 0;
    const int count =
        std::sscanf(line.c_str(), "%lf %lf%% %lf %lf %lf %lf %lf%%%n", &skipped, &skipped, &skipped,
                    &skipped, &skipped, &skipped, &found.percent, &at);
    if (count != 7) continue;
    found.mark = line.at(static_cast<size_t>(at));
    found.what = line.substr(static_cast<size_t>(at) + 2);
    output.lines.push_back(found);
  }
  EXPECT_GT(output.lines.size(), 20U) << result.output;
  return output;
}

const std::string kCacheNote = "\n* above it: its data fits in the cache of ";
const std::string kSpecNote =
    "\n+ above it: this machine is faster than the spec says; weft bench --calibrate measures it\n";

TEST(BenchOps, NothingIsAboveARooflineThatNoMachineReaches) {
  const OpsOutput output = bench_ops("memory_bandwidth", 1e18);
  for (const OpsLine& line : output.lines) {
    EXPECT_LE(line.percent, 100) << line.what;
    EXPECT_EQ(line.mark, ' ') << line.what;
  }
  EXPECT_TRUE(output.has("\nroofline: the time that the rates of device spec made up allow"))
      << output.text;
  EXPECT_FALSE(output.has(kCacheNote) || output.has(kSpecNote)) << output.text;
}

// Slow memory: the tiny model reads from the cache.
TEST(BenchOps, ACacheIsNamedWhereItIsTheReason) {
  if (host_cache_bytes() == 0) GTEST_SKIP() << "the system does not tell the size of its caches";
  const OpsOutput output = bench_ops("memory_bandwidth", 1e3);
  for (const OpsLine& line : output.lines) {
    EXPECT_GT(line.percent, 100) << line.what;
    EXPECT_EQ(line.mark, '*') << line.what;
  }
  EXPECT_TRUE(output.has(kCacheNote)) << output.text;
  EXPECT_FALSE(output.has(kSpecNote)) << output.text;
}

// Slow matmuls: no cache explains why they are faster.
TEST(BenchOps, ASpecThatIsTooSlowIsNamed) {
  const OpsOutput output = bench_ops("matmul_flops_f32", 1e6);
  int64_t matmuls = 0;
  for (const OpsLine& line : output.lines) {
    if (!line.what.starts_with("matmul")) continue;
    EXPECT_GT(line.percent, 100) << line.what;
    EXPECT_EQ(line.mark, '+') << line.what;
    ++matmuls;
  }
  EXPECT_GT(matmuls, 2);
  EXPECT_TRUE(output.has(kSpecNote)) << output.text;
  EXPECT_FALSE(output.has(kCacheNote)) << output.text;
}

}  // namespace
}  // namespace weft
