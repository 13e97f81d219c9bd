// What a run must know to continue survives being written.
#include "train/training_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/user_error.h"

namespace weft {
namespace {

// No member has its default value, so that one that is not written would show.
TrainingState sample() {
  return {.step = 120,
          .samples = int64_t{1} << 40,
          .skipped = 3,
          .nonfinite_in_a_row = 2,
          .validation_due = true,
          .seed = 42,
          .ranks = 8,
          .mesh = "dp_replicate=2 dp_shard=4",
          .tokenizer = "6828a99c1e3216ff",
          .backend = "cpu"};
}

void expect_refused(const std::string& message, const nlohmann::json& state) {
  expect_user_error(ExitCode::InputFile, message,
                    [&] { parse_training_state(state.dump(), "state"); });
}

TEST(TrainingState, HasThisText) {
  EXPECT_EQ(to_json(sample()), R"({
  "step": 120,
  "samples": 1099511627776,
  "skipped": 3,
  "nonfinite_in_a_row": 2,
  "validation_due": true,
  "seed": 42,
  "ranks": 8,
  "mesh": "dp_replicate=2 dp_shard=4",
  "tokenizer": "6828a99c1e3216ff",
  "backend": "cpu"
}
)");
}

TEST(TrainingState, ReadsWhatItWrites) {
  for (const TrainingState& state : {TrainingState{}, sample()}) {
    EXPECT_EQ(parse_training_state(to_json(state), "state"), state);
  }
}

TEST(TrainingState, EveryMemberIsRequired) {
  const auto complete = nlohmann::json::parse(to_json(sample()));
  for (const auto& [key, value] : complete.items()) {
    nlohmann::json state = complete;
    state.erase(key);
    expect_refused(cat("state: \"", key, "\" is missing"), state);
  }
}

TEST(TrainingState, MembersAreChecked) {
  auto state = nlohmann::json::parse(to_json(sample()));
  const auto with = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json changed = state;
    changed[key] = value;
    return changed;
  };
  expect_refused("state: \"seed\" is a string, expected a whole number", with("seed", "42"));
  expect_refused("state: \"validation_due\" is a number, expected true or false",
                 with("validation_due", 1));
  expect_refused("state: \"mesh\" is a number, expected a string", with("mesh", 4));
  expect_refused("state: step -1 on 8 ranks, expected at least 0 and 1", with("step", -1));
  expect_refused("state: step 120 on 0 ranks, expected at least 0 and 1", with("ranks", 0));
}

TEST(TrainingState, MeshAsText) {
  EXPECT_EQ(mesh_text({}), "");
  EXPECT_EQ(mesh_text({{{"dp_shard", 2}}}), "dp_shard=2");
  EXPECT_EQ(mesh_text({{{"dp_replicate", 2}, {"dp_shard", 4}}}), "dp_replicate=2 dp_shard=4");
}

}  // namespace
}  // namespace weft
