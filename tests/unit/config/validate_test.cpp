// What validate() accepts, and derived values; rejected configs are golden files.
#include "config/validate.h"

#include <gtest/gtest.h>

#include <array>

#include "base/text.h"
#include "config/derived.h"
#include "config/load.h"
#include "support/user_error.h"

namespace weft {
namespace {

Config parse(const std::vector<std::string>& overrides) {
  return parse_config("", "run.toml", overrides);
}

TEST(Validate, AcceptsTheDefaultsOnAnyNumberOfRanks) {
  for (const int64_t ranks : {1, 2, 3, 8}) {
    EXPECT_NO_THROW(validate(Config{}, ranks, {}));
  }
}

TEST(Validate, AKeyAtItsDefaultNeedsNoCondition) {
  EXPECT_NO_THROW(validate(parse({"--parallelism.fsdp_reshard_after_forward=default"}), 1, {}));
  EXPECT_NO_THROW(validate(parse({"--parallelism.fsdp_reshard_after_forward=never"}), 2, {}));
}

// Every change that the schedule message suggests is accepted.
TEST(Validate, EveryScheduleThatAMessageNamesFits) {
  const std::vector<std::string> key = {"lr_scheduler.decay_ratio", "lr_scheduler.warmup_steps",
                                        "training.steps"};
  for (const int64_t steps : {3, 10, 97, 1000}) {
    for (const int64_t warmup : {2, 9, 96, 250}) {
      for (const double ratio : {0.1, 0.3, 1.0 / 3, 0.75, 0.999, 1.0}) {
        const std::vector<std::string> run = {
            cat("--training.steps=", steps), cat("--lr_scheduler.warmup_steps=", warmup),
            cat("--lr_scheduler.decay_ratio=", format_double(ratio))};
        std::string error;
        try {
          validate(parse(run), 1, {});
          continue;
        } catch (const UserError& refused) {
          error = refused.what();
        }
        const std::string advice = error.substr(error.find("; use ") + 6);
        int named = 0;
        for (const std::string& name : key) {
          const size_t at = advice.find(name + " = ");
          if (at == std::string::npos) continue;
          std::string value = advice.substr(at + name.size() + 3);
          value = value.substr(0, value.find_first_of(", "));
          std::vector<std::string> changed = run;
          changed.push_back(cat("--", name, "=", value));
          EXPECT_NO_THROW(validate(parse(changed), 1, {})) << error << ": " << changed.back();
          ++named;
        }
        EXPECT_GE(named, 1) << error;
      }
    }
  }
}

// Adding a member to another folder's list is enough: it becomes a value of the key, its own keys
// are rejected with other members, and theirs with it.
TEST(Validate, AListedMemberBringsItsOwnKeys) {
  constexpr std::array<std::string_view, 1> kOwn = {"model.dropout"};
  constexpr std::array<std::string_view, 2> kOthers = {"model.bias", "model.rope_theta"};
  const ConfigChoices sets = {{.key = "model.name",
                               .members = {{.name = "gpt2", .own_keys = kOthers},
                                           {.name = "mixer", .own_keys = kOwn},
                                           {.name = "plain"}}}};
  EXPECT_NO_THROW(validate(Config{}, 1, sets));
  EXPECT_NO_THROW(validate(parse({"--model.name=mixer", "--model.dropout=0.5"}), 1, sets));
  EXPECT_NO_THROW(validate(parse({"--model.name=plain", "--model.ffn_dim=5"}), 1, sets));
  expect_user_error(
      ExitCode::Config,
      "command line: --model.dropout=0.5 has no effect: it needs model.name = \"mixer\"; remove "
      "the key",
      [&] { validate(parse({"--model.dropout=0.5"}), 1, sets); });
  expect_user_error(ExitCode::Config,
                    "command line: --model.name=resnet is unknown, expected \"gpt2\", \"mixer\" or "
                    "\"plain\"",
                    [&] { validate(parse({"--model.name=resnet"}), 1, sets); });
}

TEST(Validate, AutomaticBucketsHaveAUseForASize) {
  EXPECT_NO_THROW(
      validate(parse({"--compile.bucketing=auto", "--compile.bucket_min_parameters=5"}), 2, {}));
}

TEST(Derived, ShardDegreeTakesWhatIsLeft) {
  const Config config = parse({"--parallelism.data_parallel_replicate_degree=2"});
  EXPECT_EQ(degrees_of(config, 8).dp_replicate, 2);
  EXPECT_EQ(degrees_of(config, 8).dp_shard, 4);
}

// Ranks that share the work of layers, or sequences, work on the same samples.
TEST(Derived, OnlyDataParallelRanksDivideTheBatch) {
  for (const std::string axis : {"tensor", "context"}) {
    const Config config =
        parse({"--parallelism.data_parallel_replicate_degree=2",
               cat("--parallelism.", axis, "_parallel_degree=2"), "--training.local_batch_size=3",
               "--training.global_batch_size=24"});
    const Degrees degrees = degrees_of(config, 8);
    EXPECT_EQ(degrees.dp_shard, 2);
    EXPECT_EQ(degrees.ranks(), 8);
    EXPECT_EQ(degrees.batch_ranks(), 4);
    EXPECT_EQ(accumulation_steps(config, degrees), 2);
    EXPECT_EQ(global_batch_size(parse({"--training.local_batch_size=3"}), degrees), 12);
    for (int64_t rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(degrees.batch_rank(rank), rank / 2);
      EXPECT_EQ(global_micro_batch(config, degrees, {.rank = rank, .slot = 1}), 4 + rank / 2);
    }
  }
  const Config elastic = parse({"--parallelism.tensor_parallel_degree=2",
                                "--debug.deterministic=elastic", "--debug.elastic_shards=4"});
  EXPECT_NO_THROW(validate(elastic, 8, {}));
  EXPECT_EQ(accumulation_steps(elastic, degrees_of(elastic, 4)), 2);
}

// Two chunks per rank of cp, and equal parts of them for the ranks of tp.
TEST(Derived, SequencesArePaddedForContextParallelism) {
  const auto planned = [](std::vector<std::string> overrides, const Degrees& degrees) {
    overrides.push_back("--training.seq_len=30");
    return planned_seq_len(parse(overrides), degrees);
  };
  EXPECT_EQ(planned({}, {}), 30);
  EXPECT_EQ(planned({}, {.tp = 4}), 30);
  EXPECT_EQ(planned({}, {.cp = 2}), 32);
  EXPECT_EQ(planned({}, {.cp = 3}), 30);
  EXPECT_EQ(planned({}, {.cp = 2, .tp = 3}), 36);
  EXPECT_EQ(planned({"--parallelism.sequence_parallel=false"}, {.cp = 2, .tp = 3}), 32);
  EXPECT_EQ(tokens_per_rank(parse({"--training.seq_len=30"}), {.cp = 2, .tp = 3}), 6);
  EXPECT_EQ(tokens_per_rank(parse({"--training.seq_len=30"}), {.tp = 4}), 30);
}

TEST(Derived, GlobalBatchGivesTheAccumulation) {
  const Config plain = parse({"--training.local_batch_size=3"});
  EXPECT_EQ(global_batch_size(plain, degrees_of(plain, 4)), 12);
  EXPECT_EQ(accumulation_steps(plain, degrees_of(plain, 4)), 1);
  const Config accumulated =
      parse({"--training.local_batch_size=3", "--training.global_batch_size=24"});
  EXPECT_EQ(accumulation_steps(accumulated, degrees_of(accumulated, 4)), 2);
}

TEST(Derived, AnElasticStepHasItsShardsOnAnyNumberOfRanks) {
  const Config config = parse({"--training.local_batch_size=3", "--debug.deterministic=elastic",
                               "--debug.elastic_shards=8"});
  for (const int64_t ranks : {1, 2, 4, 8}) {
    EXPECT_NO_THROW(validate(config, ranks, {}));
    EXPECT_EQ(global_batch_size(config, degrees_of(config, ranks)), 24);
    EXPECT_EQ(accumulation_steps(config, degrees_of(config, ranks)), 8 / ranks);
    EXPECT_EQ(validation_slots(config, degrees_of(config, ranks)), 8 / ranks);
  }
  EXPECT_EQ(validation_slots(parse({"--training.global_batch_size=64"}), {.dp_shard = 2}), 1);
}

// The micro-batches that each of two ranks computes, in order.
std::vector<int64_t> micro_batches_of(const Config& config, int64_t rank) {
  std::vector<int64_t> numbers;
  for (int64_t slot = 0; slot < accumulation_steps(config, degrees_of(config, 2)); ++slot) {
    numbers.push_back(global_micro_batch(config, {.dp_shard = 2}, {.rank = rank, .slot = slot}));
  }
  return numbers;
}

TEST(Derived, MicroBatchesThatAreSummedFirstAreNeighboursInAnElasticRun) {
  const std::string once = "--training.reduce_every_micro_batch=false";
  const std::string elastic = "--debug.deterministic=elastic";
  const std::vector<int64_t> in_turn = {1, 3, 5, 7};
  const std::vector<int64_t> in_a_row = {4, 5, 6, 7};
  EXPECT_EQ(micro_batches_of(parse({elastic}), 1), in_turn);
  EXPECT_EQ(micro_batches_of(parse({elastic, once}), 1), in_a_row);
  EXPECT_EQ(micro_batches_of(parse({elastic, "--parallelism.zero_stage=1"}), 1), in_a_row);
  EXPECT_EQ(micro_batches_of(parse({once, "--training.global_batch_size=64"}), 1), in_turn);
}

TEST(Derived, ReadsSelectiveOptions) {
  const auto option = [](const std::string& text) {
    return selective_option(parse({"--activation_checkpoint.selective_ac_option=" + text}));
  };
  EXPECT_EQ(option("3").kind, SelectiveOption::Kind::EveryKth);
  EXPECT_EQ(option("3").block, 3);
  EXPECT_EQ(option("from:0").kind, SelectiveOption::Kind::FromBlock);
  EXPECT_EQ(option("from:7").block, 7);
  EXPECT_EQ(option("op").kind, SelectiveOption::Kind::ByOp);
}

TEST(Derived, DescribesAKeyByItsOrigin) {
  const Config config = parse_config("[model]\nn_heads = 5\n", "run.toml", {"--training.steps=7"});
  EXPECT_EQ(describe_key(config, "model.n_heads"), "run.toml:2: model.n_heads = 5");
  EXPECT_EQ(describe_key(config, "training.steps"), "command line: --training.steps=7");
  EXPECT_EQ(describe_key(config, "training.seq_len"), "training.seq_len = 64");
  EXPECT_EQ(describe_key(config, "model.dim"), "model.dim");
}

}  // namespace
}  // namespace weft
