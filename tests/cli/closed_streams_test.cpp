// Closed standard streams: printed text is lost, and in particular never goes into an output file
// or the memory of a rank, which would otherwise be opened under their numbers.
#include <gtest/gtest.h>

#include "cli/workspace.h"

namespace weft {
namespace {

void expect_done(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors, "");
}

TEST(ClosedStreams, RanksSaveTheSameWeights) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({"--ranks=2", "--job.dump_folder=open"}).exit_code, 0);
  const std::string expected = work.folder().read(work.saved("open") + "/model.safetensors");
  const std::vector<std::vector<int>> choices = {{0, 1}, {0, 1, 2}};
  for (const std::vector<int>& closed : choices) {
    expect_done(work.train({"--ranks=2", "--metrics.log_freq=1"}, {.closed = closed}));
    EXPECT_TRUE(work.folder().read(work.saved("out") + "/model.safetensors") == expected);
  }
}

TEST(ClosedStreams, PrepareWritesTheSameTokens) {
  const Workspace work;
  work.run_ok({"data", "prepare", kFixtureText, "--output", "open"});
  expect_done(work.run({"data", "prepare", kFixtureText, "--output", "closed"}, {.closed = {1}}));
  for (const std::string name : {"train.bin", "train.bin.json", "val.bin", "val.bin.json"}) {
    EXPECT_TRUE(work.folder().read("closed/" + name) == work.folder().read("open/" + name)) << name;
  }
}

TEST(ClosedStreams, MetricsHoldMetricsAlone) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({"--job.dump_folder=open"}).exit_code, 0);
  expect_done(work.train({"--metrics.log_freq=1"}, {.closed = {1}}));
  ASSERT_EQ(work.metrics("out/metrics.jsonl").size(),
            9U);  // six steps, two validations, a checkpoint
  for (const char* figure : {"loss", "validation_loss"}) {
    EXPECT_EQ(work.figures("out/metrics.jsonl", figure),
              work.figures("open/metrics.jsonl", figure));
  }
  EXPECT_TRUE(work.folder().read(work.saved("out") + "/model.safetensors") ==
              work.folder().read(work.saved("open") + "/model.safetensors"));
}

}  // namespace
}  // namespace weft
