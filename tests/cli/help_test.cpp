// Every command explains itself, and a wrong command line is one sentence and exit code 64.
#include <gtest/gtest.h>

#include "cli/workspace.h"

namespace weft {
namespace {

struct Help {
  std::vector<std::string> command;
  std::vector<std::string> mentions;
};

TEST(Help, MentionsEveryCommandAndOption) {
  const Workspace work;
  const std::vector<Help> pages = {
      {{}, {"train", "data", "generate", "plan", "opt", "verify", "--version"}},
      {{"train"}, {"CONFIG", "--ranks", "--transport", "--section.key=value", "docs/config.md"}},
      {{"data"}, {"prepare", "inspect"}},
      {{"data", "prepare"},
       {"INPUT", "--output", "--tokenizer", "--validation-fraction", "--split", "o200k"}},
      {{"data", "train-tokenizer"}, {"INPUT", "--output", "--vocab-size", "--split", "o200k"}},
      {{"data", "inspect"}, {"FILE", "--tokens"}},
      {{"generate"},
       {"DIR", "--prompt", "--tokens", "--temperature", "--top-k", "--top-p", "--seed",
        "--backend"}},
      {{"plan"}, {"CONFIG", "--ranks", "--passes", "--no-fit", "--spec", "--text"}},
      {{"opt"},
       {"GRAPH", "--passes", "--config", "--report", "--list-ops", "--list-passes", "--list-keys",
        "--markdown"}},
      {{"verify"},
       {"DIR", "--backend", "--loss-tolerance", "--gradient-tolerance", "--weight-tolerance"}},
  };
  for (const Help& page : pages) {
    std::vector<std::string> arguments = page.command;
    arguments.emplace_back("--help");
    const ProcessResult result = work.run_ok(arguments);
    for (const std::string& word : page.mentions) {
      EXPECT_NE(result.output.find(word), std::string::npos) << word << " in\n" << result.output;
    }
  }
}

TEST(Help, VersionIsANumber) {
  const ProcessResult result = Workspace().run_ok({"--version"});
  EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(result.output[0]))) << result.output;
}

TEST(Help, WrongCommandLinesAreOneSentence) {
  const Workspace work;
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"nosuch"},
      {"--nosuch"},
      {"train"},
      {"train", "run.toml", "more"},
      {"train", "run.toml", "--nosuch"},
      {"data"},
      {"data", "nosuch"},
      {"data", "prepare"},
      {"data", "inspect", "a", "--nosuch"},
      {"generate"},
      {"generate", "x", "--tokens", "many"},
      {"plan"},
      {"opt"},
      {"verify"},
      {"verify", "x", "--loss-tolerance", "small"},
  };
  for (const auto& line : lines) {
    const ProcessResult result = work.run(line);
    EXPECT_EQ(result.exit_code, 64) << result.errors;
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(result.errors.rfind("weft: command line: ", 0), 0U) << result.errors;
    EXPECT_EQ(result.errors.find('\n'), result.errors.size() - 1) << result.errors;
  }
}

}  // namespace
}  // namespace weft
