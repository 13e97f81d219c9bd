// Token files that change during a run: one sentence names the file, and the weights of the last
// step are saved.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <regex>

#include "checkpoint/safetensors.h"
#include "cli/workspace.h"

namespace weft {
namespace {

struct Change {
  const char* name;
  std::string file;
  std::vector<std::string> flags;
  void (*apply)(const std::string& path);
  std::string message;  // a regular expression, up to the folder of the weights
};

void truncate_file(const std::string& path) {
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
}

void overwrite(const std::string& path) {
  const std::string bytes(std::filesystem::file_size(path), '\xff');
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .write(bytes.data(), std::streamsize(bytes.size()));
}

const std::string kTruncated =
    ": file ends before byte [0-9]+, expected [0-9]+ bytes as when it was opened; restore the file "
    "and start again";
const std::string kOverwritten =
    ": token [0-9]+ has id 65535, the model's vocabulary has [0-9]+; the file has changed since "
    "the run began, restore it and start again";

class ChangedData : public testing::TestWithParam<Change> {};

TEST_P(ChangedData, EndsTheRunWithItsWeightsSaved) {
  const Change& change = GetParam();
  const Workspace work;
  work.prepare_data();
  bool changed = false;
  const ProcessOptions options{.watch = [&](pid_t, const std::string& output, const std::string&) {
    if (changed || output.find("step 5/") == std::string::npos) return;
    changed = true;
    change.apply(work.folder() / change.file);
  }};
  std::vector<std::string> flags = {"--training.steps=1000000", "--validation.freq=2",
                                    "--metrics.log_freq=1"};
  flags.insert(flags.end(), change.flags.begin(), change.flags.end());
  const ProcessResult result = work.train(flags, options);
  EXPECT_EQ(result.exit_code, 65);
  const std::regex message("weft: (rank [01]: )?" + change.file + change.message +
                           "; step [0-9]+ is saved in out/checkpoints/step-[0-9]+\n"
                           "(weft: the other rank stopped\n)?");
  EXPECT_TRUE(std::regex_match(result.errors, message)) << result.errors;
  EXPECT_NO_THROW(SafetensorsFile::open(work.folder() / work.saved("out") + "/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(
    Cli, ChangedData,
    testing::Values(
        Change{"truncated", "data/train.bin", {}, truncate_file, kTruncated},
        Change{"overwritten", "data/train.bin", {}, overwrite, kOverwritten},
        Change{"validation", "data/val.bin", {}, truncate_file, kTruncated},
        Change{"ranks", "data/train.bin", {"--ranks=2"}, truncate_file, kTruncated},
        Change{"validation_of_ranks", "data/val.bin", {"--ranks=2"}, overwrite, kOverwritten},
        Change{"threads",
               "data/train.bin",
               {"--ranks=2", "--transport=threads"},
               overwrite,
               kOverwritten}),
    [](const auto& change) { return std::string(change.param.name); });

}  // namespace
}  // namespace weft
