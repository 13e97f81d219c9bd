// The full cross product of the compiler's choices for a step on ranks: mode x bucketing x overlap
// x reshard x recompute. On the same number of ranks all have the same losses, norms and
// parameters, bit for bit. Settings that result in the same plan run once.
#include <gtest/gtest.h>

#include <set>

#include "plan/comm_volume.h"
#include "plan/text.h"
#include "ranks/modes.h"
#include "support/short_run.h"

namespace weft {
namespace {

const Overrides kModel = with(kTiny, {"--model.n_layers=2"});

const std::vector<Overrides> kBucketing = {
    {"--compile.bucketing=none"},
    {"--compile.bucketing=transformer_block"},
    {"--compile.bucketing=size", "--compile.bucket_min_parameters=3000"},
    {"--compile.bucketing=manual",
     "--compile.buckets=tok_embeddings+pos_embeddings,layers.[0-1].attention,layers.*,norm"},
    {"--compile.bucketing=auto"}};
const std::vector<Overrides> kOverlap = {{"--compile.overlap=true"}, {"--compile.overlap=false"}};
// FSDP that never reshards is ZeRO-2.
const std::vector<Overrides> kReshard = {{"--parallelism.fsdp_reshard_after_forward=always"},
                                         {"--parallelism.fsdp_reshard_after_forward=never"}};
const std::vector<Overrides> kRecompute = {
    {"--activation_checkpoint.mode=none"},
    {"--activation_checkpoint.mode=full"},
    {"--activation_checkpoint.mode=selective"},
    {"--activation_checkpoint.mode=selective", "--activation_checkpoint.selective_ac_option=op"},
    {"--activation_checkpoint.mode=memory_budget"}};

std::vector<Overrides> combinations(const std::vector<std::vector<Overrides>>& factors) {
  std::vector<Overrides> all = {{}};
  for (const auto& factor : factors) {
    std::vector<Overrides> longer;
    for (const Overrides& prefix : all) {
      for (const Overrides& value : factor) longer.push_back(with(prefix, value));
    }
    all = std::move(longer);
  }
  return all;
}

class Combinations : public testing::TestWithParam<std::tuple<int64_t, std::string>> {};

TEST_P(Combinations, HasTheBitsOfPlainDdp) {
  const auto& [ranks, name] = GetParam();
  const Overrides plain = {"--compile.bucketing=none", "--compile.overlap=false"};
  const ShortRun expected =
      ranks == 1 ? short_run(kModel)
                 : short_run_on_ranks(ranks, with(with(kModel, mode("ddp", ranks)), plain));
  EXPECT_NE(expected.losses.front(), expected.losses.back());
  std::set<uint64_t> plans;
  for (const Overrides& options : combinations({kBucketing, kOverlap, kReshard, kRecompute})) {
    const PreparedRun run = prepare_run(ranks, with(with(kModel, mode(name, ranks)), options));
    EXPECT_EQ(packing_bytes(run.compiled.plan, ProgramKind::Last), 0) << join(options, " ");
    if (!plans.insert(hash(run.compiled.plan)).second) continue;
    EXPECT_TRUE(short_run_on_ranks(run) == expected) << join(options, " ");
  }
  // Recompute and overlap always change the plan, and so do at least three bucketing settings.
  EXPECT_GE(plans.size(), 3 * kOverlap.size() * kRecompute.size());
  RecordProperty("plans", static_cast<int>(plans.size()));
}

// Settings in which every two values of two factors occur together.
std::vector<Overrides> pairs() {
  std::vector<Overrides> all;
  for (size_t i = 0; i < kBucketing.size(); ++i) {
    for (size_t j = 0; j < kRecompute.size(); ++j) {
      all.push_back(with(with(kBucketing[i], kRecompute[j]),
                         with(kOverlap[(i + j) % 2], kReshard[(i + j / 2) % 2])));
    }
  }
  return all;
}

class MeshCombinations : public testing::TestWithParam<std::pair<std::string, Overrides>> {};

// Two data-parallel ranks, each of which is two ranks of another axis.
TEST_P(MeshCombinations, HaveTheBitsOfPlainDdp) {
  constexpr int64_t kRanks = 4;
  const Overrides model =
      with(with(kModel, {"--model.n_heads=2", "--training.seq_len=16"}), GetParam().second);
  const Overrides plain = {"--compile.bucketing=none", "--compile.overlap=false",
                           "--parallelism.data_parallel_shard_degree=1",
                           "--parallelism.data_parallel_replicate_degree=2"};
  const ShortRun expected = short_run_on_ranks(kRanks, with(model, plain));
  EXPECT_NE(expected.losses.front(), expected.losses.back());
  std::set<uint64_t> plans;
  for (const Overrides& options : pairs()) {
    const PreparedRun run = prepare_run(kRanks, with(model, options));
    if (!plans.insert(hash(run.compiled.plan)).second) continue;
    EXPECT_TRUE(short_run_on_ranks(run) == expected) << join(options, " ");
  }
  EXPECT_GE(plans.size(), kOverlap.size() * kRecompute.size());
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, MeshCombinations,
    testing::Values(
        std::pair<std::string, Overrides>{"tp", {"--parallelism.tensor_parallel_degree=2"}},
        std::pair<std::string, Overrides>{"cp", {"--parallelism.context_parallel_degree=2"}},
        std::pair<std::string, Overrides>{"ring",
                                          {"--parallelism.context_parallel_degree=2",
                                           "--parallelism.context_parallel_method=ring"}}),
    [](const auto& test) { return test.param.first; });

std::string case_name(const testing::TestParamInfo<Combinations::ParamType>& test) {
  return cat(std::get<1>(test.param), "_on_", std::get<0>(test.param));
}

INSTANTIATE_TEST_SUITE_P(Groups, Combinations,
                         testing::Combine(testing::Values(1, 2, 3, 4, 8),
                                          testing::Values("zero1", "fsdp")),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Copies, Combinations,
                         testing::Combine(testing::Values(2, 3, 4, 8), testing::Values("ddp")),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Hybrid, Combinations,
                         testing::Combine(testing::Values(4, 8), testing::Values("hsdp")),
                         case_name);

}  // namespace
}  // namespace weft
