// Names of states and outputs follow from role and owner, and give them back.
#include "graph/roles.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace weft {
namespace {

TEST(StateKey, PrintsAndParsesToTheSame) {
  const std::vector<std::pair<StateKey, std::string>> known = {
      {{StateRole::FirstMoment, "output.weight"}, "m.output.weight"},
      {{StateRole::SecondMoment, "layers.0.w+3"}, "v.layers.0.w+3"},
      {{StateRole::LowCopy, "w"}, "low.w"},
      {{StateRole::FullCopy, "w"}, "full.w"},
      {{StateRole::GradientSum, "w"}, "grad.w"},
      {{StateRole::GradientSum, "layers.0.w", 0}, "grad.level0.layers.0.w"},
      {{StateRole::GradientSum, "w", 12}, "grad.level12.w"},
      {{StateRole::LossSum, "", 1}, "loss.level1"},
      {{StateRole::UpdateCount}, "adam.count"},
      {{StateRole::LossScale}, "loss_scale"},
      {{StateRole::GoodSteps}, "loss_scale.good"},
      {{StateRole::Other, "acc"}, "acc"},
  };
  for (const auto& [key, name] : known) {
    EXPECT_EQ(to_string(key), name);
    EXPECT_EQ(parse_state_key(name), key) << name;
  }
}

TEST(StateKey, ANameOfNoRoleIsKeptAsItIs) {
  for (const char* name : {"", "m", "m.", "momentum.w", "loss.w", "loss.level01", "adam", "low"}) {
    EXPECT_EQ(parse_state_key(name).role, StateRole::Other) << name;
    EXPECT_EQ(to_string(parse_state_key(name)), name);
  }
  for (const char* name : {"grad.level0", "grad.level01.w", "grad.level.w", "grad.level0."}) {
    EXPECT_EQ(parse_state_key(name).level, -1) << name;
    EXPECT_EQ(to_string(parse_state_key(name)), name);
  }
}

TEST(StateKey, HasAnOwnerAndALevelOnlyWhereTheRoleHas) {
  EXPECT_THROW(to_string(StateKey{StateRole::FirstMoment}), InternalError);
  EXPECT_THROW(to_string(StateKey{StateRole::LossScale, "w"}), InternalError);
  EXPECT_THROW(to_string(StateKey{StateRole::LowCopy, "w", 0}), InternalError);
}

TEST(OutputKey, PrintsAndParsesToTheSame) {
  const std::vector<std::pair<OutputKey, std::string>> known = {
      {{OutputRole::Loss}, "loss"},
      {{OutputRole::Logits}, "logits"},
      {{OutputRole::GradientNorm}, "grad_norm"},
      {{OutputRole::Gradient, "layers.0.w"}, "grad.layers.0.w"},
      {{OutputRole::Other, "y"}, "y"},
      {{OutputRole::Other, "grad."}, "grad."},
  };
  for (const auto& [key, name] : known) {
    EXPECT_EQ(to_string(key), name);
    EXPECT_EQ(parse_output_key(name), key) << name;
  }
  EXPECT_THROW(to_string(OutputKey{OutputRole::Gradient}), InternalError);
  EXPECT_THROW(to_string(OutputKey{OutputRole::Loss, "w"}), InternalError);
}

}  // namespace
}  // namespace weft
