// weft verify against the stored traces: matching results pass, altered ones do not.
#include <gtest/gtest.h>

#include "base/text.h"
#include "cli/workspace.h"

namespace weft {
namespace {

constexpr const char* kTrace = WEFT_TESTS_DIR "/numerics/gpt2";
constexpr const char* kBatchOf8 = WEFT_TESTS_DIR "/numerics/gpt2_batch8";

// A copy of a trace in the workspace.
void copy_trace(const Workspace& work, const char* trace = kTrace) {
  std::filesystem::copy(trace, work.folder() / "trace", std::filesystem::copy_options::recursive);
}

TEST(Verify, TheStoredTracesPass) {
  const Workspace work;
  for (const char* backend : {"cpu", "reference"}) {
    const ProcessResult result = work.run_ok({"verify", kTrace, "--backend", backend});
    for (const char* part : {"losses", "gradient norms", "gradients", "final weights"}) {
      EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
    }
    EXPECT_EQ(result.output.find("FAIL"), std::string::npos) << result.output;
  }
}

TEST(Verify, TheBackendIsAKeyOrAnOption) {
  const Workspace work;
  const std::string reference = work.run_ok({"verify", kTrace, "--backend", "reference"}).output;
  EXPECT_EQ(work.run_ok({"verify", kTrace, "--device.backend=reference"}).output, reference);
  EXPECT_NE(work.run_ok({"verify", kTrace}).output, reference);
}

TEST(Verify, KeysAreCheckedAgainstTheTrace) {
  const ProcessResult result = Workspace().run({"verify", kTrace, "--training.loss_chunks=64"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_EQ(result.errors,
            "weft: command line: --training.loss_chunks=64 does not divide training.seq_len = 32; "
            "use a divisor of it\n");
}

TEST(Verify, ATraceIsNotTrainedWithoutAnUpdate) {
  const ProcessResult result =
      Workspace().run({"verify", kTrace, "--compile.disable_passes=optimizer"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_EQ(result.errors,
            "weft: command line: --compile.disable_passes=optimizer: a training run needs "
            "optimizer; leave it on, or use weft plan or weft opt\n");
}

TEST(Verify, AnAlteredLossFails) {
  const Workspace work;
  copy_trace(work);
  auto trace = nlohmann::json::parse(work.folder().read("trace/trace.json"));
  trace["losses"][3] = trace["losses"][3].get<double>() * 1.001;
  work.folder().write("trace/trace.json", trace.dump());
  const ProcessResult result = work.run({"verify", "trace"});
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_NE(result.output.find("FAIL  at step 4"), std::string::npos) << result.output;
}

TEST(Verify, ATighterToleranceFailsAndALooserOnePasses) {
  const Workspace work;
  EXPECT_EQ(work.run({"verify", kTrace, "--loss-tolerance", "1e-30"}).exit_code, 1);
  copy_trace(work);
  auto trace = nlohmann::json::parse(work.folder().read("trace/trace.json"));
  trace["losses"][3] = trace["losses"][3].get<double>() * 1.001;
  work.folder().write("trace/trace.json", trace.dump());
  EXPECT_EQ(work.run({"verify", "trace", "--loss-tolerance", "1e-2"}).exit_code, 0);
}

struct RanksCase {
  std::string name;
  std::vector<std::string> flags;
};

class VerifyRanks : public testing::TestWithParam<std::tuple<const char*, RanksCase>> {};

// Four comparisons, within the tolerances of one rank.
TEST_P(VerifyRanks, AgreeWithPyTorch) {
  const auto& [model, mode] = GetParam();
  const std::string trace = std::string(WEFT_TESTS_DIR "/numerics/") + model + "_batch8";
  std::vector<std::string> arguments = {"verify", trace};
  arguments.insert(arguments.end(), mode.flags.begin(), mode.flags.end());
  const std::string output = Workspace().run_ok(arguments).output;
  const std::vector<std::string> lines = split(output, '\n');
  ASSERT_EQ(lines.size(), 5U) << output;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NE(lines[i].find("  ok  "), std::string::npos) << lines[i];
    EXPECT_EQ(lines[i].find("worst 0.00e+00"), std::string::npos) << "not compared: " << lines[i];
  }
}

const RanksCase kRanks[] = {
    {"one", {}},
    {"group_of_one", {"--parallelism.data_parallel_shard_degree=1"}},
    {"fsdp2", {"--ranks", "2"}},
    {"fsdp4", {"--ranks=4"}},
    {"ddp2", {"--ranks=2", "--parallelism.data_parallel_replicate_degree=2"}},
    {"hsdp4", {"--ranks=4", "--parallelism.data_parallel_replicate_degree=2"}},
    {"zero1_4", {"--ranks=4", "--parallelism.zero_stage=1"}},
    {"zero2_4", {"--ranks=4", "--parallelism.fsdp_reshard_after_forward=never"}},
    {"reference2", {"--ranks=2", "--backend=reference"}},
    {"tp2", {"--ranks=2", "--parallelism.tensor_parallel_degree=2"}},
    {"fsdp2_tp2", {"--ranks=4", "--parallelism.tensor_parallel_degree=2"}},
    {"fsdp4_tp2_full_sequence",
     {"--ranks=8", "--parallelism.tensor_parallel_degree=2",
      "--parallelism.sequence_parallel=false"}},
    {"hsdp_tp2",
     {"--ranks=8", "--parallelism.tensor_parallel_degree=2",
      "--parallelism.data_parallel_replicate_degree=2"}},
    {"fsdp4_cp2", {"--ranks=8", "--parallelism.context_parallel_degree=2"}},
    {"cp4", {"--ranks=4", "--parallelism.context_parallel_degree=4"}},
    {"ring4",
     {"--ranks=4", "--parallelism.context_parallel_degree=4",
      "--parallelism.context_parallel_method=ring"}},
    {"fsdp2_cp2_tp2",
     {"--ranks=8", "--parallelism.context_parallel_degree=2",
      "--parallelism.tensor_parallel_degree=2"}},
    {"reference_cp2",
     {"--ranks=2", "--parallelism.context_parallel_degree=2", "--backend=reference"}},
    {"reference_tp2",
     {"--ranks=2", "--parallelism.tensor_parallel_degree=2", "--backend=reference"}},
};

INSTANTIATE_TEST_SUITE_P(Cli, VerifyRanks,
                         testing::Combine(testing::Values("gpt2", "llama3"),
                                          testing::ValuesIn(kRanks)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" +
                                  std::get<1>(test.param).name;
                         });

TEST(CompareCommand, SaysWhatDiffersAndHow) {
  const Workspace work;
  work.folder().write("a.toml",
                      "[model]\nname = \"llama\"\nflavor = \"debug\"\nn_layers = 1\n"
                      "[training]\nseq_len = 16\nlocal_batch_size = 2\n");
  const ProcessResult same =
      work.run_ok({"compare", "a.toml", "--ranks-b=2", "--b.parallelism.tensor_parallel_degree=2"});
  EXPECT_TRUE(same.output.starts_with("within tolerance: ")) << same.output;
  const ProcessResult other =
      work.run({"compare", "a.toml", "--b.model.rope_theta=100", "--b.training.seq_len=16"});
  EXPECT_EQ(other.exit_code, 64) << other.output;
  EXPECT_EQ(other.errors,
            "weft: the runs train different models; compare needs the same keys under model in "
            "both\n");
  const ProcessResult rounded = work.run(
      {"compare", "a.toml", "--b.training.mixed_precision_param=bfloat16", "--tolerance=1e-4"});
  EXPECT_EQ(rounded.exit_code, 1);
  EXPECT_TRUE(rounded.output.starts_with(
      "first difference: %tok_embeddings (tok_embeddings fwd) in step 1, element ["))
      << rounded.output;
}

// Every rank has its own sequences: changing one token of the last rank changes the loss.
TEST(Verify, AnAlteredTokenOfTheLastRankFails) {
  const Workspace work;
  copy_trace(work, kBatchOf8);
  auto trace = nlohmann::json::parse(work.folder().read("trace/trace.json"));
  auto& token = trace["tokens"][7][16];
  token = (token.get<int>() + 1) % 50;
  work.folder().write("trace/trace.json", trace.dump());
  const ProcessResult result = work.run({"verify", "trace", "--ranks=4"});
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_NE(result.output.find("losses          worst "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("FAIL  at step "), std::string::npos) << result.output;
}

TEST(Verify, RanksHaveToDivideTheBatch) {
  const Workspace work;
  copy_trace(work, kBatchOf8);
  const ProcessResult result = work.run({"verify", "trace", "--ranks", "3"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_EQ(
      result.errors,
      "weft: command line: --ranks 3 does not divide the 8 sequences of trace/trace.json; use "
      "a divisor of 8\n");
}

// An error that all ranks find is reported once.
TEST(Verify, AMissingFileIsNamedOnce) {
  const Workspace work;
  copy_trace(work, kBatchOf8);
  std::filesystem::remove(work.folder() / "trace/final.safetensors");
  const ProcessResult one = work.run({"verify", "trace"});
  EXPECT_EQ(one.exit_code, 65);
  const ProcessResult two = work.run({"verify", "trace", "--ranks=2"});
  EXPECT_EQ(two.exit_code, 65);
  EXPECT_EQ(two.errors, one.errors);
}

TEST(Verify, RecomputationAndOtherOptionsArePassedOn) {
  Workspace().run_ok({"verify", kTrace, "--activation_checkpoint.mode=full"});
}

}  // namespace
}  // namespace weft
