#include "compile/fit.h"

#include <gtest/gtest.h>

#include <map>

#include "config/load.h"
#include "support/temp_folder.h"

namespace weft {
namespace {

// GPT-2 "tiny" on a device with this much memory.
Config on_device(const TempFolder& folder, int64_t memory, std::vector<std::string> overrides) {
  Config config = parse_config("", "test", {});
  DeviceSpec device = load_device_spec(config, "cpu");
  device.memory_bytes = memory;
  folder.write("device.toml", device_spec_to_toml(device));
  overrides.insert(overrides.begin(), {"--training.local_batch_size=8", "--training.seq_len=32",
                                       "--device.spec=" + folder / "device.toml"});
  return parse_config("", "test", overrides);
}

std::optional<Alternative> alternative(const Config& config) {
  return find_alternative(config, resolve_model(config.model, 0), 1);
}

// From the cheapest change per step to those that change the run.
TEST(Fit, NamesTheFirstThatFits) {
  const TempFolder folder;
  const std::string chunks = "--training.loss_chunks=8", full = "--activation_checkpoint.mode=full";
  const auto with_room = [&](const std::vector<std::string>& overrides) {
    return on_device(folder, int64_t{1} << 40, overrides);
  };
  const auto found = alternative(with_room({}));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->fits);
  EXPECT_EQ(found->change, chunks);
  EXPECT_EQ(found->rank_bytes, rank_bytes(compile(with_room({chunks})).plan));
  EXPECT_EQ(alternative(with_room({chunks}))->change, full);
  EXPECT_EQ(alternative(with_room({chunks, full}))->change, "--ranks 2");
}

// A large vocabulary: neither change alone is small enough.
TEST(Fit, TakesTwoChangesWhereOneIsNotEnough) {
  const TempFolder folder;
  const std::string chunks = "--training.loss_chunks=8", full = "--activation_checkpoint.mode=full";
  const auto config = [&](std::vector<std::string> overrides, int64_t memory) {
    overrides.emplace_back("--model.vocab_size=4096");
    return on_device(folder, memory, overrides);
  };
  const int64_t needed = rank_bytes(compile(config({chunks, full}, int64_t{1} << 40)).plan);
  for (const std::string& one : {chunks, full}) {
    ASSERT_GT(rank_bytes(compile(config({one}, int64_t{1} << 40)).plan), needed) << one;
  }
  const auto found = alternative(config({}, needed));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->fits);
  EXPECT_EQ(found->change, cat(full, " ", chunks));
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

// A limit at which the states of every plan fit but no step does; with this vocabulary no two
// changes need the same memory.
TEST(Fit, NamesTheSmallestWhenNoneFits) {
  const TempFolder folder;
  const std::string chunks = "--training.loss_chunks=8", full = "--activation_checkpoint.mode=full";
  const std::string half = "--training.local_batch_size=4";
  const auto config = [&](std::vector<std::string> overrides) {
    overrides.emplace_back("--model.vocab_size=4096");
    return on_device(folder, int64_t{1} << 40, overrides);
  };
  std::map<int64_t, std::string> tried;  // by bytes per rank
  for (const std::vector<std::string>& change :
       std::vector<std::vector<std::string>>{{chunks}, {full}, {full, chunks}, {half}}) {
    tried[rank_bytes(compile(config(change)).plan)] = join(change, " ");
  }
  for (const int64_t ranks : {2, 4, 8}) {
    tried[rank_bytes(compile(config({}), {.data_vocab = 0, .ranks = ranks}).plan)] =
        cat("--ranks ", ranks);
  }
  ASSERT_EQ(tried.size(), 7U);
  const auto& [bytes, change] = *tried.begin();
  ASSERT_NE(change, chunks) << "the first that is tried";
  ASSERT_NE(change, half) << "the last that is tried";
  const auto found =
      find_alternative(config({}), resolve_model(config({}).model, 0), 1,
                       [](const Compiled& compiled) { return compiled.plan.persistent_bytes; });
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->fits);
  EXPECT_EQ(found->change, change);
  EXPECT_EQ(found->rank_bytes, bytes);
}

// If not even the states fit, only more ranks can help: no other change is suggested.
TEST(Fit, NamesTheMostRanksWhenNoStatesFit) {
  const TempFolder folder;
  const Config config = on_device(folder, 1, {});
  const auto found = alternative(config);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->fits);
  EXPECT_EQ(found->change, "--ranks 8");
  EXPECT_EQ(found->rank_bytes, rank_bytes(compile(config, {.data_vocab = 0, .ranks = 8}).plan));
}

TEST(Fit, SaysWhatToDo) {
  Alternative found{.change = "--ranks 4", .rank_bytes = int64_t{3} << 30, .fits = true};
  EXPECT_EQ(advice(found), "--ranks 4 needs 3 GiB per rank");
  found = {.change = "--activation_checkpoint.mode=full", .rank_bytes = 1024, .fits = false};
  EXPECT_EQ(advice(found),
            "no alternative fits; closest: --activation_checkpoint.mode=full needs 1 KiB");
  EXPECT_EQ(advice(std::nullopt), "use a smaller model or shorter sequences");
}

// The device spec allows what the free memory does not.
TEST(Fit, KeepsToTheLimitItIsGiven) {
  const TempFolder folder;
  const Config config = on_device(folder, int64_t{1} << 40, {});
  const auto recomputed = alternative(config);
  ASSERT_TRUE(recomputed);
  const int64_t free = recomputed->rank_bytes - 1;
  const auto found = find_alternative(config, resolve_model(config.model, 0), 1,
                                      [&](const Compiled&) { return free; });
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->fits);
  EXPECT_NE(found->change, recomputed->change);
  EXPECT_LE(found->rank_bytes, free);
}

TEST(Fit, RanksDivideADeviceThatTheyShare) {
  Compiled alone;
  alone.device.collectives_bytes = 1000;
  EXPECT_EQ((FreeMemory{.bytes = 10000}.of_rank(alone)), 10000);
  Compiled two = alone;
  two.plan.mesh.axes.push_back({"dp_shard", 2});
  EXPECT_EQ((FreeMemory{.bytes = 10000}.of_rank(two)), 9000);
  EXPECT_EQ((FreeMemory{.bytes = 10000, .shared = true}.of_rank(two)), 4000);
  EXPECT_EQ((FreeMemory{.bytes = 500}.of_rank(two)), 0);
}

// Half the batch per rank fits; more ranks would only add more of them to the same memory.
TEST(Fit, MoreRanksOfOneDeviceAreNoHelp) {
  const TempFolder folder;
  const Config config = on_device(folder, int64_t{1} << 40, {"--activation_checkpoint.mode=full"});
  const int64_t needed = rank_bytes(compile(config, {.data_vocab = 0, .ranks = 2}).plan);
  const FreeMemory free{.bytes = 2 * needed - 1, .shared = true};
  const auto found = find_alternative(config, resolve_model(config.model, 0), 2,
                                      [&](const Compiled& other) { return free.of_rank(other); });
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->fits);
  EXPECT_EQ(found->change, "--training.local_batch_size=4");
  EXPECT_EQ(advice(found), cat("--training.local_batch_size=4 needs ",
                               human_bytes(static_cast<double>(found->rank_bytes))));
}

TEST(Fit, SkipsWhatTheConfigDoesNotAllow) {
  const TempFolder folder;
  // Eight sequences per step are those of one rank, so there is no work for a second one.
  const Config config = on_device(folder, int64_t{1} << 40,
                                  {"--activation_checkpoint.mode=full", "--training.loss_chunks=8",
                                   "--training.global_batch_size=8"});
  EXPECT_EQ(alternative(config)->change, "--training.local_batch_size=4");
}

}  // namespace
}  // namespace weft
