#include "tools/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/user_error.h"

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// How often each token is chosen in this many samples.
std::vector<int> counts(const std::vector<float>& logits, const SamplerOptions& options,
                        int picks) {
  std::vector<int> found(logits.size());
  for (int i = 0; i < picks; ++i) {
    ++found.at(static_cast<size_t>(sample_token(logits, options, static_cast<uint64_t>(i))));
  }
  return found;
}

TEST(Sampler, TemperatureZeroTakesTheLargestAndTheFirstOfEquals) {
  const SamplerOptions greedy = {.temperature = 0};
  EXPECT_EQ(sample_token(std::vector<float>{0, 3, 1, 3}, greedy, 0), 1);
  EXPECT_EQ(sample_token(std::vector<float>{-kInfinity, -5}, greedy, 0), 1);
}

TEST(Sampler, FollowsTheDistribution) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  constexpr int kPicks = 100000;
  const std::vector<int> found = counts(logits, {.seed = 3}, kPicks);
  const double expected[] = {0.1, 0.6, 0.3};
  for (size_t i = 0; i < 3; ++i) {
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(found[i], kPicks * expected[i],
                5 * std::sqrt(kPicks * expected[i] * (1 - expected[i])));
  }
}

TEST(Sampler, TemperatureSharpens) {
  const std::vector<float> logits = {0, std::log(3.0f)};
  constexpr int kPicks = 100000;
  // At temperature 1/2 odds of 3 become odds of 9.
  EXPECT_NEAR(counts(logits, {.temperature = 0.5}, kPicks)[1], 0.9 * kPicks,
              5 * std::sqrt(kPicks * 0.09));
}

TEST(Sampler, TopKKeepsTheLikeliest) {
  const std::vector<float> logits = {1, 4, 3, 4, 2};
  const std::vector<int> found = counts(logits, {.top_k = 2}, 1000);
  EXPECT_EQ(found[0] + found[2] + found[4], 0);
  EXPECT_GT(found[1], 0);
  EXPECT_GT(found[3], 0);
  // Of equals the smaller token is kept; a k above the number of tokens means all.
  EXPECT_EQ(counts(logits, {.top_k = 1}, 100)[1], 100);
  EXPECT_EQ(counts(logits, {.top_k = 99}, 1000), counts(logits, {}, 1000));
}

TEST(Sampler, TopPKeepsTheNucleus) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  EXPECT_EQ(counts(logits, {.top_p = 0.4}, 100)[1], 100);
  const std::vector<int> two = counts(logits, {.top_p = 0.75}, 1000);
  EXPECT_EQ(two[0], 0);
  EXPECT_GT(two[2], 0);
  EXPECT_GT(counts(logits, {.top_p = 0.85}, 1000)[0], 0);
}

TEST(Sampler, RepeatsForTheSameSeedOnly) {
  const std::vector<float> logits(50, 0.0f);
  std::vector<int64_t> a, b, c;
  for (uint64_t i = 0; i < 20; ++i) {
    a.push_back(sample_token(logits, {.seed = 1}, i));
    b.push_back(sample_token(logits, {.seed = 1}, i));
    c.push_back(sample_token(logits, {.seed = 2}, i));
  }
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(Sampler, ExtremeLogits) {
  const std::vector<float> logits = {-3e38f, 3e38f, -kInfinity};
  EXPECT_EQ(counts(logits, {.temperature = 1e-3}, 100)[1], 100);
  EXPECT_EQ(counts(logits, {.temperature = 1e300}, 1000)[2], 0);
  EXPECT_EQ(sample_token(std::vector<float>{2}, {}, 0), 0);
}

TEST(Sampler, RefusesLogitsThatAreNotNumbers) {
  for (const std::vector<float>& logits :
       {std::vector<float>{0, NAN}, {0, kInfinity}, {-kInfinity, -kInfinity}, {}}) {
    expect_user_error(ExitCode::NonFinite, "the model's logits are not finite; check its weights",
                      [&] { sample_token(logits, {}, 0); });
  }
}

TEST(Sampler, ChecksItsOptions) {
  const auto refused = [](const std::string& message, const SamplerOptions& options) {
    expect_user_error(ExitCode::Config, message, [&] { check_sampler(options); });
  };
  check_sampler({});
  refused("command line: --temperature -1 is out of range; expected 0 or more",
          {.temperature = -1});
  refused("command line: --top-k -1 is out of range; expected 1 or more, or 0 for all tokens",
          {.top_k = -1});
  refused("command line: --top-p 0 is out of range; expected above 0 and at most 1", {.top_p = 0});
}

}  // namespace
}  // namespace weft
