// Runs tests/golden/errors/config/*.txt: each file holds a sentence, the invalid config and
// overrides, and the exit code and message that the user must see.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "compile/config_choices.h"
#include "config/device_spec.h"
#include "config/load.h"
#include "config/validate.h"
#include "support/golden_files.h"

namespace weft {
namespace {

// Parts of a golden file by the word after "---"; the sentence before the first is "".
struct GoldenCase {
  std::map<std::string, std::string> parts;
  std::string error_code;

  const std::string& part(const std::string& name) { return parts[name]; }
  bool has(const std::string& name) const { return parts.count(name) > 0; }
};

GoldenCase read_case(const std::filesystem::path& path) {
  std::ifstream in(path);
  GoldenCase out;
  std::string current, line;
  while (std::getline(in, line)) {
    if (line.rfind("--- ", 0) == 0) {
      const std::vector<std::string> words = split(line, ' ');
      current = words.at(1);
      out.parts[current];
      if (current == "error") {
        out.error_code = words.at(2);
      }
    } else {
      out.parts[current] += line + "\n";
    }
  }
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Loads and checks what the case describes, as a command would.
void run_case(GoldenCase& golden) {
  const std::vector<std::string> overrides = lines_of(golden.part("overrides"));
  const Config config = golden.has("path")
                            ? load_config(std::string(trim(golden.part("path"))), overrides)
                            : parse_config(golden.part("config"), "run.toml", overrides);
  const std::string ranks(trim(golden.part("ranks")));
  validate(config, ranks.empty() ? 1 : parse_int(ranks).value(), config_choices());
  if (golden.has("device_spec")) {
    parse_device_spec(golden.part("device_spec"), "machine.toml");
  } else {
    load_device_spec(config, "cpu");
  }
}

class ConfigError : public testing::TestWithParam<std::string> {};

TEST_P(ConfigError, SaysWhatTheGoldenFileSays) {
  GoldenCase golden = read_case(WEFT_TESTS_DIR "/golden/errors/config/" + GetParam() + ".txt");
  ASSERT_FALSE(trim(golden.part("")).empty()) << "the file must start with a sentence";
  ASSERT_TRUE(golden.has("error")) << "the file must have a part --- error CODE";
  try {
    run_case(golden);
    FAIL() << "no error was raised";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), std::string(trim(golden.part("error"))));
    EXPECT_EQ(cat(static_cast<int>(error.code())), golden.error_code);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ConfigError,
                         testing::ValuesIn(golden_names("errors/config", ".txt")),
                         [](const auto& golden) { return golden.param; });

}  // namespace
}  // namespace weft
