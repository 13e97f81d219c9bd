#include "config/load.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "config/derived.h"
#include "config/schema.h"
#include "config/validate.h"
#include "support/user_error.h"

namespace weft {
namespace {

Config parse(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return parse_config(toml, "run.toml", overrides);
}

TEST(Load, EmptyTextGivesTheDefaults) {
  const Config config = parse("");
  EXPECT_EQ(config_to_toml(config), config_to_toml(Config{}));
  EXPECT_TRUE(config.set_by_user.empty());
}

TEST(Load, ReadsEveryTypeOfValue) {
  const Config config = parse(R"(
[model]
name = "llama"
n_kv_heads = 2
tie_embeddings = true
rope_theta = 10000
[training]
mixed_precision_param = "bfloat16"
[compile]
disable_passes = ["fuse", "simplify"]
[activation_checkpoint]
mode = "memory_budget"
)");
  EXPECT_EQ(config.model.name, "llama");
  EXPECT_EQ(config.model.n_kv_heads, 2);
  EXPECT_EQ(config.model.tie_embeddings, true);
  EXPECT_EQ(config.model.rope_theta, 10000.0);
  EXPECT_EQ(config.model.dim, std::nullopt);
  EXPECT_EQ(config.training.mixed_precision_param, Precision::Bfloat16);
  EXPECT_EQ(config.compile.disable_passes, (std::vector<std::string>{"fuse", "simplify"}));
  EXPECT_EQ(config.activation_checkpoint.mode, RecomputeMode::MemoryBudget);
}

TEST(Load, OverridesWinInOrder) {
  const Config config =
      parse("[training]\nsteps = 5\n",
            {"--training.steps=6", "--training.steps=7", "--optimizer.lr=1e-3",
             "--checkpoint.enable=false", "--job.description=a = b", "--compile.disable_passes=a,b",
             "--activation_checkpoint.save_ops="});
  EXPECT_EQ(config.training.steps, 7);
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_FALSE(config.checkpoint.enable);
  EXPECT_EQ(config.job.description, "a = b");
  EXPECT_EQ(config.compile.disable_passes, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(config.activation_checkpoint.save_ops.empty());
}

// As in a config file, or with commas alone.
TEST(Load, ListsOnTheCommandLineHaveTwoForms) {
  const auto buckets = [](const std::string& text) {
    return parse("", {"--compile.buckets=" + text}).compile.buckets;
  };
  const std::vector<std::string> two = {"layers.[0-5]", "norm+output"};
  EXPECT_EQ(buckets(R"(["layers.[0-5]", "norm+output"])"), two);
  EXPECT_EQ(buckets("layers.[0-5],norm+output"), two);
  EXPECT_EQ(buckets("layers.[0-5], norm+output"), two);
  EXPECT_EQ(buckets("['a,b']"), std::vector<std::string>{"a,b"});
  EXPECT_TRUE(buckets("[]").empty());
  EXPECT_TRUE(buckets("").empty());
}

TEST(Load, MessagesShortenWhatTheUserWrote) {
  const std::string letters(60000, 'k');
  const std::string most = letters.substr(0, 60) + "...";
  expect_user_error(ExitCode::Config,
                    cat("run.toml:1: unknown key \"", most, "\"; docs/config.md lists every key"),
                    [&] { parse(letters + " = 1\n"); });
  expect_user_error(ExitCode::Config,
                    cat("command line: unknown key \"training.", letters.substr(0, 51),
                        "...\"; docs/config.md lists every key"),
                    [&] { parse("", {"--training." + letters + "=1"}); });
  expect_user_error(
      ExitCode::Config,
      cat("command line: --training.steps=", most, " is a string, expected a whole number"),
      [&] { parse("", {"--training.steps=" + letters}); });
  expect_user_error(
      ExitCode::Config,
      cat("command line: --job.dump_folder=", most, " has 60000 characters, expected at most 4095"),
      [&] { parse("", {"--job.dump_folder=" + letters}); });
  expect_user_error(ExitCode::Config,
                    cat(most, ": the path has 60000 characters, expected at most 4095"),
                    [&] { load_config(letters, {}); });
  const std::string entry(4000, 'k');
  const Config mix = parse("", {"--training.dataset=file", "--training.dataset_mix=" + entry});
  expect_user_error(ExitCode::Config,
                    cat("command line: --training.dataset_mix=", most, ": \"", most,
                        "\" is not of the form \"path=weight\" with a weight above 0"),
                    [&] { validate(mix, 1, {}); });
}

TEST(Load, TextOverridesAreNotReadAsNumbers) {
  EXPECT_EQ(parse("", {"--activation_checkpoint.selective_ac_option=4"})
                .activation_checkpoint.selective_ac_option,
            "4");
}

TEST(Load, RecognisesOverrides) {
  EXPECT_TRUE(looks_like_override("--training.steps=4"));
  EXPECT_TRUE(looks_like_override("--training.steps"));
  EXPECT_FALSE(looks_like_override("--backend=a.b"));
  EXPECT_FALSE(looks_like_override("configs/a.toml"));
  EXPECT_FALSE(looks_like_override("--"));
}

TEST(Load, PrintedConfigReadsBackToTheSameText) {
  const Config config = parse(R"(
[job]
description = "tab\t quote\" backslash\\ line\nend"
[model]
name = "llama"
vocab_size = -1
norm_eps = 1e-5
rope_scaling = "llama3"
[optimizer]
lr = 0.1
beta1 = 0
eps = 1.2345678901234567e-9
[compile]
disable_passes = ["a", "b"]
dump_folder = "dump"
[validation]
enable = true
)");
  const std::string text = config_to_toml(config);
  const Config again = parse(text);
  EXPECT_EQ(config_to_toml(again), text);
  EXPECT_EQ(again.optimizer.eps, 1.2345678901234567e-9);
  EXPECT_EQ(again.job.description, "tab\t quote\" backslash\\ line\nend");
  EXPECT_NO_THROW(validate(again, 1, {}))
      << "keys printed with their default must not count as set";
}

TEST(Load, EveryKeyTakesTheValueItPrints) {
  for (const Key<Config>& key : config_keys()) {
    const ConfigValue value = key.get(Config{});
    if (std::holds_alternative<std::monostate>(value)) {
      continue;
    }
    Config config;
    const Entry entry{.key = key.name, .value = value, .subject = key.name};
    if (key.rule.choices.empty()) {
      EXPECT_NO_THROW(key.set(config, check_value(entry, key.rule))) << key.name;
      continue;
    }
    for (const std::string& choice : key.rule.choices) {
      key.set(config, ConfigValue(choice));
      EXPECT_EQ(std::get<std::string>(key.get(config)), choice) << key.name;
    }
  }
}

TEST(Load, EveryKeyBelongsToASectionAndIsDocumented) {
  for (const Key<Config>& key : config_keys()) {
    EXPECT_FALSE(key.options.doc.empty()) << key.name;
    const bool unset = std::holds_alternative<std::monostate>(key.get(Config{}));
    EXPECT_EQ(unset, !key.options.unset.empty()) << key.name;
  }
  const std::string page = config_reference_markdown({});
  for (const Section& section : config_sections()) {
    EXPECT_NE(page.find("\n## " + section.name + "\n"), std::string::npos);
  }
}

TEST(Load, NamesTheFirstMistakeOfTheFile) {
  const std::string error =
      user_error_of([] { parse("[training]\nsteps = 0\n[model]\nname = 3\n"); });
  EXPECT_TRUE(error.starts_with("run.toml:2:")) << error;
}

}  // namespace
}  // namespace weft
