// weft bench: what it prints; the figures are for a quiet machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "cli/workspace.h"

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
  for (const char* name : {"all_gather  ", "all_gather in common", "reduce_scatter"}) {
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

TEST(Bench, RanksCountTheTokensOfWholeSteps) {
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
    EXPECT_NEAR(rate * milliseconds * 1e-3, 8 * 32, 2.56) << line;  // what printing rounds off
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

}  // namespace
}  // namespace weft
