#include "compile/compile.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/load.h"
#include "graph/text.h"
#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

Config tiny(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), {"--training.local_batch_size=2", "--training.seq_len=16"});
  return parse_config("", "test", overrides);
}

TEST(Compile, HasTheProgramsThatTheRunNeeds) {
  const Compiled plain = compile(tiny());
  EXPECT_FALSE(plain.plan.program(ProgramKind::Last).empty());
  EXPECT_TRUE(plain.plan.program(ProgramKind::Micro).empty());
  EXPECT_TRUE(plain.plan.program(ProgramKind::Eval).empty());
  const Compiled full =
      compile(tiny({"--training.global_batch_size=4", "--validation.enable=true"}));
  EXPECT_FALSE(full.plan.program(ProgramKind::Micro).empty());
  EXPECT_FALSE(full.plan.program(ProgramKind::Eval).empty());
}

TEST(Compile, OneReductionPerStepIsReportedWhereMicroBatchesAreAddedUp) {
  const auto says_once = [](int64_t batch) {
    const Config config =
        tiny({"--parallelism.zero_stage=1", cat("--training.global_batch_size=", batch)});
    const std::vector<PassReport> reports = compile(config, {.data_vocab = 0, .ranks = 2}).reports;
    const auto report =
        std::find_if(reports.begin(), reports.end(),
                     [](const PassReport& candidate) { return candidate.pass == "shard_params"; });
    return report->note.ends_with("once per step");
  };
  EXPECT_FALSE(says_once(4));
  EXPECT_TRUE(says_once(8));
}

// Evaluation alone would choose different buckets here: one for all parameters.
TEST(Compile, EvaluationReadsTheStorageOfTheTraining) {
  const std::vector<std::string> sharded = {"--model.dim=32",
                                            "--model.vocab_size=34",
                                            "--training.local_batch_size=4",
                                            "--training.seq_len=32",
                                            "--compile.bucketing=auto",
                                            "--parallelism.fsdp_reshard_after_forward=never",
                                            "--activation_checkpoint.mode=memory_budget"};
  std::vector<std::string> validated = sharded;
  validated.emplace_back("--validation.enable=true");
  const Plan train = compile(tiny(sharded), {.data_vocab = 0, .ranks = 4}).plan;
  const Plan both = compile(tiny(validated), {.data_vocab = 0, .ranks = 4}).plan;
  const auto names = [](const Plan& plan) {
    std::vector<std::string> list;
    for (const Binding& param : plan.params) list.push_back(param.name);
    return list;
  };
  EXPECT_GT(train.params.size(), 1U);
  EXPECT_EQ(names(both), names(train));
}

// Hybrid sharding gathers and scatters inside and sums across, the latter two on one stream.
TEST(Compile, GroupsOfCollectivesComeInTheOrderOfFirstUse) {
  const Compiled hybrid = compile(tiny({"--parallelism.data_parallel_replicate_degree=2"}),
                                  {.data_vocab = 0, .ranks = 4});
  const std::vector<CollectiveGroup> expected = {
      {"dp_shard", 1}, {"dp_replicate+dp_shard", 2}, {"dp_shard", 2}, {"dp_replicate", 2}};
  EXPECT_EQ(collective_groups(hybrid.plan), expected);
  EXPECT_TRUE(collective_groups(compile(tiny()).plan).empty());
}

TEST(Compile, CountsTiedWeightsOnce) {
  // GPT-2 "tiny": 256 x 64 and 64 x 64 tables, two blocks of 12 d^2 + 13 d, a final norm of 2 d.
  const double d = 64;
  EXPECT_EQ(num_params(compile(tiny()).params),
            256 * d + 64 * d + 2 * (12 * d * d + 13 * d) + 2 * d);
}

TEST(Compile, PredictsWhatCommunicationAddsToTheStep) {
  const PlanTime alone = compile(tiny()).estimate;
  EXPECT_GT(alone.compute_seconds, 0);
  EXPECT_EQ(alone.collective_seconds, 0);
  EXPECT_EQ(alone.exposed_seconds(), 0);
  const PlanTime shared = compile(tiny(), {.data_vocab = 0, .ranks = 2}).estimate;
  EXPECT_GT(shared.exposed_seconds(), 0);  // the first gather has nothing to hide behind
  EXPECT_LE(shared.exposed_seconds(), shared.collective_seconds);
}

TEST(Compile, AStepIsAsLongAsItsMicroBatches) {
  const double one = compile(tiny()).estimate.seconds;
  const double four = compile(tiny({"--training.global_batch_size=8"})).estimate.seconds;
  EXPECT_GT(four, 3 * one);  // one update, but three accumulations
  EXPECT_LT(four, 5 * one);
}

TEST(Compile, RanksOfOneMachineShareIt) {
  const Compiled alone = compile(tiny());
  const Compiled four = compile(tiny(), {.data_vocab = 0, .ranks = 4});
  EXPECT_EQ(memory_limit(four), memory_limit(alone) / 4);
  const TempFolder folder;
  DeviceSpec hosts = device_spec_of(tiny());
  hosts.ranks_per_host = 2;
  hosts.links.push_back({.hosts = 2,
                         .ranks = 1,
                         .gather_bandwidth = 1e9,
                         .scatter_bandwidth = 1e9,
                         .sum_bandwidth = 1e9});
  const std::string file = folder.write("hosts.toml", device_spec_to_toml(hosts));
  const Compiled apart = compile(tiny({"--device.spec=" + file}), {.data_vocab = 0, .ranks = 4});
  EXPECT_EQ(memory_limit(apart), memory_limit(alone) / 2);
}

// A plan for four ranks, each with this much memory, that should gather six buckets ahead.
Compiled compile_within(int64_t memory, int64_t prefetch = 6) {
  const TempFolder folder;
  DeviceSpec device = device_spec_of(tiny());
  device.memory_bytes = memory;
  device.ranks_share_memory = false;
  const std::string file = folder.write("device.toml", device_spec_to_toml(device));
  return compile(tiny({"--model.n_layers=8", "--compile.bucketing=transformer_block",
                       cat("--compile.prefetch=", prefetch), "--device.spec=" + file}),
                 {.data_vocab = 0, .ranks = 4});
}

TEST(Compile, SaysHowThePlanWasMadeToFit) {
  const Compiled roomy = compile_within(int64_t{1} << 40);
  EXPECT_EQ(roomy.replanning.times, 0);
  EXPECT_EQ(to_string(summarize(roomy)).find("replanned"), std::string::npos);
  const int64_t least = rank_bytes(compile_within(1, 0).plan);
  const Compiled tight = compile_within(least);
  EXPECT_LE(rank_bytes(tight.plan), least);
  EXPECT_GE(tight.replanning.times, 1);
  EXPECT_EQ(tight.replanning.asked_prefetch, 6);
  EXPECT_NE(to_string(summarize(tight)).find("compile.prefetch = 0 instead of 6"),
            std::string::npos);
}

// Between the two some limits are met by leaving room for fragmentation.
TEST(Compile, ReservesMemoryForFragmentation) {
  const int64_t least = rank_bytes(compile_within(1, 0).plan);
  const int64_t most = rank_bytes(compile_within(int64_t{1} << 40).plan);
  ASSERT_GT(most, least);
  int64_t reserved = 0;
  for (int64_t i = 0; i <= 16; ++i) {
    const int64_t limit = least + (most - least) * i / 16;
    const Compiled compiled = compile_within(limit);
    EXPECT_LE(rank_bytes(compiled.plan), limit);
    const Replanning& replanning = compiled.replanning;
    if (replanning.times == 0 || replanning.asked_prefetch) continue;
    EXPECT_GT(replanning.reserved_bytes, 0);
    ++reserved;
  }
  EXPECT_GT(reserved, 0);
}

// Llama on 8 GPUs that share every sequence; a ring has more launches, but overlaps.
TEST(Compile, AutoTakesTheFasterContextMethod) {
  const auto seconds = [](int64_t length, const std::string& method) {
    const Config config = parse_config(
        "", "test",
        {"--model.name=llama", "--model.flavor=8B", "--model.n_layers=2", "--device.backend=cuda",
         "--device.spec=h100", "--training.local_batch_size=1", cat("--model.max_seq_len=", length),
         cat("--training.seq_len=", length), "--parallelism.context_parallel_degree=8",
         "--parallelism.context_parallel_method=" + method});
    return compile(config, {.data_vocab = 0, .ranks = 8}).estimate.seconds;
  };
  EXPECT_LT(seconds(2048, "allgather"), seconds(2048, "ring"));
  EXPECT_EQ(seconds(2048, "auto"), seconds(2048, "allgather"));
  EXPECT_LT(seconds(65536, "ring"), seconds(65536, "allgather"));
  EXPECT_EQ(seconds(65536, "auto"), seconds(65536, "ring"));
}

// One layer whose keys and values are most of its memory.
TEST(Compile, AutoTakesTheContextMethodThatFits) {
  const TempFolder folder;
  const auto with_memory = [&](int64_t memory, const std::string& method) {
    DeviceSpec device = load_device_spec(parse_config("", "test", {}), "cpu");
    device.memory_bytes = memory;
    device.ranks_share_memory = false;
    folder.write("device.toml", device_spec_to_toml(device));
    const Config config = parse_config(
        "", "test",
        {"--model.name=llama", "--model.flavor=debug", "--model.n_layers=1",
         "--model.vocab_size=64", "--model.ffn_dim=64", "--model.dim=64", "--model.n_heads=2",
         "--model.n_kv_heads=2", "--training.seq_len=256", "--model.max_seq_len=256",
         "--training.local_batch_size=8", "--parallelism.context_parallel_degree=8",
         "--parallelism.context_parallel_method=" + method,
         "--device.spec=" + folder / "device.toml"});
    return compile(config, {.data_vocab = 0, .ranks = 8});
  };
  const int64_t enough = int64_t{1} << 40;
  const int64_t gathered = rank_bytes(with_memory(enough, "allgather").plan);
  const int64_t ring = rank_bytes(with_memory(enough, "ring").plan);
  EXPECT_LT(ring, gathered);
  EXPECT_EQ(rank_bytes(with_memory(enough, "auto").plan), gathered);
  EXPECT_LE(rank_bytes(with_memory(ring, "auto").plan), ring);
}

TEST(Compile, TakesTheVocabularyOfTheData) {
  EXPECT_EQ(
      compile(tiny({"--model.vocab_size=-1"}), {.data_vocab = 65, .ranks = 1}).spec.vocab_size, 65);
}

TEST(Compile, DumpsThePassesAskedFor) {
  const TempFolder folder;
  compile(tiny({"--compile.dump_folder=" + folder / "dumps", "--compile.dump_passes=autodiff"}));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "dumps")) {
    const std::string name = entry.path().filename().string();
    EXPECT_NE(name.find("-autodiff."), std::string::npos) << name;
    const std::string text = folder.read("dumps/" + name);
    EXPECT_EQ(print_graph(parse_graph(text)), text);
    ++files;
  }
  EXPECT_EQ(files, 2);
}

TEST(Compile, RefusesToDumpAPassThatIsNone) {
  const TempFolder folder;
  const Config config =
      tiny({"--compile.dump_folder=" + folder / "dumps", "--compile.dump_passes=fuze"});
  EXPECT_THROW(compile(config), UserError);
  EXPECT_TRUE(folder.names().empty());
}

TEST(Compile, DecodePlansHaveNoBackward) {
  const Config config = tiny();
  const Compiled training = compile(config);
  const Compiled decode =
      compile_forward(config, training.spec, {.batch = 1, .seq_len = 8, .mode = BuildMode::Decode});
  EXPECT_FALSE(decode.plan.program(ProgramKind::Eval).empty());
  EXPECT_TRUE(decode.plan.program(ProgramKind::Last).empty());
  EXPECT_LT(decode.plan.arena_bytes, training.plan.arena_bytes);
  EXPECT_EQ(num_params(decode.params), num_params(training.params));
}

}  // namespace
}  // namespace weft
