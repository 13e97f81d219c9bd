// The lines before the first step, for configs that no other test trains.
#include "train/headline.h"

#include <gtest/gtest.h>

#include "config/load.h"
#include "plan/summary.h"
#include "plan/timing.h"
#include "support/temp_folder.h"

namespace weft {
namespace {

std::vector<std::string> lines_of(const std::vector<std::string>& overrides, int64_t ranks = 1) {
  const Config config = parse_config("", "run.toml", overrides);
  return headline(config, compile(config, {.ranks = ranks}));
}

TEST(Headline, NamesAPresetThatIsOne) {
  const std::vector<std::string> preset = {"--model.flavor=baby", "--model.dropout=0.0"};
  EXPECT_EQ(lines_of(preset)[0],
            "model    gpt2 baby: 10.7 M parameters, 6 layers, 384 wide, 6 heads, 65 token ids");
  EXPECT_EQ(lines_of({"--model.flavor=baby", "--model.n_layers=4"})[0],
            "model    gpt2 (changed from baby): 7.2 M parameters, 4 layers, 384 wide, 6 heads, 65 "
            "token ids");
}

TEST(Headline, SaysTheGlobalBatchTheMeshAndTheSharedMemory) {
  const std::vector<std::string> lines =
      lines_of({"--parallelism.data_parallel_replicate_degree=2", "--training.local_batch_size=2",
                "--training.global_batch_size=48", "--training.seq_len=16",
                "--training.mixed_precision_param=bfloat16"},
               8);
  EXPECT_EQ(lines[2],
            "batch    48 sequences x 16 tokens = 768 tokens per step in 3 micro-batches per rank, "
            "bfloat16 with float32 master weights");
  EXPECT_EQ(lines[3], "ranks    8: dp_replicate 2 x dp_shard 4");
  EXPECT_NE(lines[4].find(" planned per rank, "), std::string::npos) << lines[4];
  EXPECT_NE(lines[4].find(" shared per host"), std::string::npos) << lines[4];
}

// Steps, plus a validation after every tenth step and after the last.
TEST(Headline, PredictsTheEntireRun) {
  const Config config = parse_config("", "run.toml",
                                     {"--training.steps=25", "--validation.enable=true",
                                      "--validation.freq=10", "--validation.steps=4"});
  Compiled compiled = compile(config);
  compiled.estimate.seconds = 2;
  const double validation = 3 * 4 * program_time(compiled.plan, ProgramKind::Eval).seconds;
  const std::string expected = cat("time     2 s per step, ", human_duration(50 + validation),
                                   " for 25 steps (rough: from the built-in rates of cpu; ");
  EXPECT_TRUE(headline(config, compiled)[5].starts_with(expected)) << headline(config, compiled)[5];
}

TEST(Headline, AMeasuredSpecIsNamed) {
  const TempFolder folder;
  Config config = parse_config("", "run.toml", {});
  const std::string path = folder.write("m.toml", device_spec_to_toml(device_spec_of(config)));
  config.device.spec = path;
  const std::string line = headline(config, compile(config))[5];
  EXPECT_TRUE(line.ends_with(" for 1000 steps (predicted from " + path + ")")) << line;
}

}  // namespace
}  // namespace weft
