// A folder in which a test runs the built command, with a small text and a config to train on it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/newest_checkpoint.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace weft {

inline constexpr const char* kFixtureText = WEFT_TESTS_DIR "/cli/fixtures/weaver.txt";

// A GPT-2 small enough for a step to take milliseconds.
inline constexpr const char* kSmallConfig = R"([job]
dump_folder = "out"

[model]
flavor = "tiny"
vocab_size = -1
dim = 32
n_layers = 2

[training]
dataset = "file"
dataset_path = "data/train.bin"
local_batch_size = 4
seq_len = 32
steps = 6

[optimizer]
lr = 1e-2

[lr_scheduler]
warmup_steps = 2

[validation]
enable = true
dataset_path = "data/val.bin"
freq = 3
steps = 2
)";

class Workspace {
 public:
  Workspace() { folder_.write("run.toml", kSmallConfig); }

  const TempFolder& folder() const { return folder_; }

  // Runs weft in this folder.
  ProcessResult run(std::vector<std::string> arguments, ProcessOptions options = {}) const {
    arguments.insert(arguments.begin(), WEFT_BINARY);
    options.folder = folder_.path();
    ProcessResult result = run_process(arguments, options);
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.signal, 0) << result.errors;
    return result;
  }

  // Runs weft and expects success without output on standard error.
  ProcessResult run_ok(const std::vector<std::string>& arguments,
                       ProcessOptions options = {}) const {
    ProcessResult result = run(arguments, std::move(options));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors, "");
    return result;
  }

  // Makes data/train.bin and data/val.bin from the fixture.
  void prepare_data() const { run_ok({"data", "prepare", kFixtureText, "--output", "data"}); }

  // Trains run.toml with these overrides, and replaces what an earlier run left.
  ProcessResult train(std::vector<std::string> overrides, ProcessOptions options = {}) const {
    overrides.insert(overrides.begin(), {"train", "run.toml", "--overwrite"});
    return run(overrides, std::move(options));
  }

  // The newest checkpoint of a run, relative to this folder.
  std::string saved(const std::string& run) const { return newest_checkpoint(folder_, run); }

  // The objects of a metrics file.
  std::vector<nlohmann::json> metrics(const std::string& path) const {
    std::vector<nlohmann::json> lines;
    std::string line;
    for (const char c : folder_.read(path)) {
      line += c;
      if (c != '\n') continue;
      lines.push_back(nlohmann::json::parse(line));
      line.clear();
    }
    EXPECT_EQ(line, "") << "the last line is incomplete";
    return lines;
  }

  // One metric from every line that has it.
  std::vector<double> figures(const std::string& path, const char* key) const {
    std::vector<double> values;
    for (const auto& line : metrics(path)) {
      if (line.contains(key)) values.push_back(line.at(key).get<double>());
    }
    return values;
  }

  // Every file below the folder with its content; folders end in "/".
  std::map<std::string, std::string> tree() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      const std::string name = std::filesystem::relative(entry.path(), folder_.path()).string();
      if (entry.is_directory()) {
        found[name + "/"];
      } else {
        found[name] = folder_.read(name);
      }
    }
    return found;
  }

 private:
  TempFolder folder_;
};

}  // namespace weft
