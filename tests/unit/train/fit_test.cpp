#include "train/fit.h"

#include <gtest/gtest.h>

#include "config/load.h"
#include "support/temp_folder.h"

namespace weft {
namespace {

// GPT-2 "tiny" on a device with so much memory.
Config on_device(const TempFolder& folder, int64_t memory, std::vector<std::string> overrides) {
  Config config = parse_config("", "test", {});
  DeviceSpec device = load_device_spec(config);
  device.memory_bytes = memory;
  folder.write("device.toml", device_spec_to_toml(device));
  overrides.insert(overrides.begin(), {"--training.local_batch_size=8", "--training.seq_len=32",
                                       "--device.spec=" + folder / "device.toml"});
  return parse_config("", "test", overrides);
}

std::optional<Alternative> alternative(const Config& config) {
  return find_alternative(config, resolve_model(config.model, 0), 1);
}

TEST(Fit, NamesTheFirstThatFits) {
  const TempFolder folder;
  const Config config = on_device(folder, int64_t{1} << 40, {});
  const auto found = alternative(config);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->fits);
  EXPECT_EQ(found->change, "--activation_checkpoint.mode=full");
  const Config full = on_device(folder, int64_t{1} << 40, {"--activation_checkpoint.mode=full"});
  EXPECT_EQ(found->rank_bytes, rank_bytes(compile(full).plan));
  EXPECT_EQ(alternative(full)->change, "--ranks 2");
}

TEST(Fit, DropsTheCopiesOfWeightsFirst) {
  const TempFolder folder;
  const std::vector<std::string> bf16 = {"--training.mixed_precision_param=bfloat16"};
  std::vector<std::string> kept = bf16;
  kept.emplace_back("--training.keep_low_precision=true");
  const auto found = alternative(on_device(folder, int64_t{1} << 40, kept));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->change, "--training.keep_low_precision=false");
  EXPECT_EQ(found->rank_bytes, rank_bytes(compile(on_device(folder, int64_t{1} << 40, bf16)).plan));
}

TEST(Fit, NamesTheSmallestWhenNoneFits) {
  const TempFolder folder;
  const auto found = alternative(on_device(folder, 1, {}));
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->fits);
  EXPECT_GT(found->rank_bytes, 1);
}

TEST(Fit, SkipsWhatTheConfigDoesNotAllow) {
  const TempFolder folder;
  // Eight sequences a step are those of one rank, so there is nothing for a second one.
  const Config config =
      on_device(folder, int64_t{1} << 40,
                {"--activation_checkpoint.mode=full", "--training.global_batch_size=8"});
  EXPECT_EQ(alternative(config)->change, "--training.local_batch_size=4");
}

}  // namespace
}  // namespace weft
