// weft verify against the stored traces: what agrees passes, what was altered does not.
#include <gtest/gtest.h>

#include "cli/workspace.h"

namespace weft {
namespace {

constexpr const char* kTrace = WEFT_TESTS_DIR "/numerics/gpt2";

// A copy of the trace in the workspace.
void copy_trace(const Workspace& work) {
  std::filesystem::copy(kTrace, work.folder() / "trace", std::filesystem::copy_options::recursive);
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

TEST(Verify, RecomputationAndOtherOptionsArePassedOn) {
  Workspace().run_ok({"verify", kTrace, "--activation_checkpoint.mode=full"});
}

}  // namespace
}  // namespace weft
