// Checks that need the lists of models and backends: their own keys, and what is derived from them.
#include "compile/config_choices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "config/device_spec.h"
#include "config/load.h"
#include "config/schema.h"
#include "config/validate.h"
#include "model/model.h"
#include "runtime/device.h"
#include "support/read_file.h"

namespace weft {
namespace {

// A misspelt key in a list would be accepted for every member.
TEST(ConfigChoices, OwnKeysAreKeys) {
  for (const Choices& set : config_choices()) {
    ASSERT_NE(find_config_key(set.key), nullptr) << set.key;
    for (const Choices::Member& member : set.members) {
      for (const std::string_view key : member.own_keys) {
        EXPECT_NE(find_config_key(key), nullptr) << member.name << " lists " << key;
      }
    }
  }
}

TEST(ConfigChoices, AKeyThatNobodyListsIsForAll) {
  for (const ModelDef* model : all_models()) {
    const Config config =
        parse_config("", "test", {cat("--model.name=", model->name), "--model.ffn_dim=512"});
    EXPECT_NO_THROW(validate(config, 1, config_choices())) << model->name;
  }
}

TEST(ConfigChoices, EveryBackendHasAUsualMachine) {
  for (const Backend& backend : all_backends()) {
    EXPECT_EQ(load_device_spec({}, backend.spec).name, backend.spec);
  }
}

TEST(ConfigChoices, ReferencePageIsCurrent) {
  const std::string page = config_reference_markdown(config_choices());
  const std::string fresh = testing::TempDir() + "config.md";
  if (read_file(WEFT_TESTS_DIR "/../docs/config.md") != page) {
    std::ofstream(fresh) << page;
    FAIL() << "docs/config.md is not what the schema says; copy " << fresh << " over it";
  }
}

TEST(ConfigChoices, CommittedConfigsAreValid) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(WEFT_TESTS_DIR "/../configs")) {
    const Config config = load_config(file.path().string(), {});
    EXPECT_NO_THROW(validate(config, 1, config_choices())) << file.path();
    ++count;
  }
  EXPECT_GE(count, 7);
}

}  // namespace
}  // namespace weft
