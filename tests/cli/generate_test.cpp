// weft generate: the seed determines the text, and the sampler's options are respected.
#include <gtest/gtest.h>

#include "cli/workspace.h"

namespace weft {
namespace {

// One trained model for all tests here.
class Generate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    work_ = new Workspace;
    work_->prepare_data();
    ASSERT_EQ(work_->train({"--training.steps=20"}).exit_code, 0);
  }
  static void TearDownTestSuite() {
    delete work_;
    work_ = nullptr;
  }

  static std::string text(std::vector<std::string> options) {
    options.insert(options.begin(), {"generate", "out", "--prompt", "The ", "--tokens", "40"});
    return work_->run_ok(options).output;
  }

  static Workspace* work_;
};

Workspace* Generate::work_ = nullptr;

TEST_F(Generate, TheSeedDecidesTheText) {
  const std::string first = text({"--seed", "1"});
  EXPECT_EQ(first.rfind("The ", 0), 0U) << first;
  EXPECT_EQ(first.size(), 4U + 40U + 1U);
  EXPECT_EQ(first, text({"--seed", "1"}));
  EXPECT_NE(first, text({"--seed", "2"}));
}

TEST_F(Generate, GreedyNeedsNoSeed) {
  const std::string greedy = text({"--temperature", "0"});
  EXPECT_EQ(greedy, text({"--temperature", "0", "--seed", "5"}));
  EXPECT_EQ(greedy, text({"--top-k", "1", "--seed", "6"}));
  EXPECT_EQ(greedy, text({"--top-p", "1e-9", "--seed", "7"}));
}

TEST_F(Generate, TheFolderOfARunHasItsWeights) {
  const std::string of_run =
      work_->run_ok({"generate", "out", "--prompt", "The ", "--tokens", "40", "--seed", "1"})
          .output;
  EXPECT_EQ(of_run, text({"--seed", "1"}));
}

// Without an end token, a new text starts after a newline.
TEST_F(Generate, AnEmptyPromptStartsANewText) {
  const auto generate = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"generate", "out", "--tokens", "30"});
    return work_->run_ok(options).output;
  };
  const std::string started = generate({});
  EXPECT_EQ(started.size(), 30U + 1U);
  EXPECT_EQ(generate({"--prompt", ""}), started);
  EXPECT_EQ(generate({"--prompt", "\n"}), "\n" + started);
}

TEST_F(Generate, BackendsAgree) {
  EXPECT_EQ(text({"--seed", "3"}), text({"--seed", "3", "--backend", "reference"}));
}

TEST_F(Generate, ATextLongerThanTheModelsTableGoesOn) {
  const ProcessResult result =
      work_->run_ok({"generate", "out", "--prompt", "The ", "--tokens", "100"});
  EXPECT_EQ(result.output.size(), 4U + 100U + 1U);
}

TEST_F(Generate, AReaderThatLeavesEndsIt) {
  const ProcessResult result =
      work_->run({"generate", "out", "--prompt", "The ", "--tokens", "1000000"},
                 {.timeout_seconds = 30, .reader_gone = true});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.errors, "");
}

}  // namespace
}  // namespace weft
