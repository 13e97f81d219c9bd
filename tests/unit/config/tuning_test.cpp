#include "config/tuning.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

Tuning made_up() {
  return {.device = "NVIDIA H200",
          .library = "cuBLASLt 130000",
          .choices = {{"matmul rows=8 cols=4 in=bf16", "00ff"}, {"matmul rows=9", "12"}}};
}

TEST(Tuning, ReadsBackWhatItWrites) {
  const std::string text = tuning_to_toml(made_up());
  const Tuning read = parse_tuning(text, "tuning.toml");
  EXPECT_EQ(read.device, "NVIDIA H200");
  EXPECT_EQ(read.library, "cuBLASLt 130000");
  EXPECT_EQ(read.choices, made_up().choices);
  EXPECT_EQ(tuning_to_toml(read), text);
}

TEST(Tuning, IsEmptyUnlessAFileIsNamed) {
  Config config;
  EXPECT_TRUE(load_tuning(config).empty());
  const TempFolder folder;
  config.device.tuning = folder.write("tuning.toml", tuning_to_toml(made_up()));
  EXPECT_EQ(load_tuning(config).choices.size(), 2U);
}

std::string error_of(const std::string& toml) {
  return user_error_of([&] { parse_tuning(toml, "t.toml"); });
}

TEST(Tuning, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(error_of("device = \"a\"\n"),
            "t.toml: no value for library, choices; create the file with weft bench tune");
  EXPECT_EQ(error_of("device = \"a\"\nlibrary = \"b\"\nchoices = [\"matmul\"]\n"),
            "t.toml: choices: \"matmul\" is not \"call: algorithm\"; create the file with weft "
            "bench tune");
  EXPECT_EQ(error_of("device = \"a\"\nlibrary = \"b\"\nchoices = []\n"),
            "t.toml: choices: none, expected at least one; create the file with weft bench tune");
}

}  // namespace
}  // namespace weft
