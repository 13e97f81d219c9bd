// Full parameters read from ranks that hold a shard of each: after every step, within the device
// memory that the plan leaves free, and by one rank while the others only take part.
#include <gtest/gtest.h>

#include "ranks/modes.h"
#include "support/short_run.h"
#include "train/session.h"

namespace weft {
namespace {

std::vector<float> read_all(Session& session) {
  std::vector<float> all;
  for (size_t i = 0; i < session.compiled().params.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(count(session.compiled().params[i].shape)));
    session.read_param(i, values);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void step(Session& session, int64_t number) {
  const auto tokens = static_cast<size_t>(session.compiled().plan.inputs.at(0).tensor.shape[0] *
                                          session.compiled().plan.inputs.at(0).tensor.shape[1]);
  session.train_step({.step = number, .seed = 3, .lr = 1e-2}, [&](int64_t sample, Batch& batch) {
    batch.tokens.assign(tokens, static_cast<int32_t>(sample + 5));
    batch.targets.assign(tokens, static_cast<int32_t>(sample + 6));
  });
}

const Overrides kOneBucket = {"--compile.bucketing=size",
                              "--compile.bucket_min_parameters=1000000"};

TEST(ReadParams, SeesEveryUpdate) {
  const PreparedRun run = prepare_run(2, with(with(kTiny, kOneBucket), mode("fsdp", 2)));
  ASSERT_EQ(run.compiled.plan.params.size(), 1u);
  on_ranks(run, [&](Communicator& comm) {
    Session often(run.config, run.compiled, comm), once(run.config, run.compiled, comm);
    often.initialize(1);
    once.initialize(1);
    std::vector<float> before = read_all(often);
    for (int64_t number = 0; number < 2; ++number) {
      step(often, number);
      step(once, number);
      std::vector<float> after = read_all(often);
      EXPECT_FALSE(before == after);
      before = std::move(after);
    }
    EXPECT_TRUE(before == read_all(once));
    // Written values are read back, even if nothing has run in between.
    const std::vector<float> ones(static_cast<size_t>(count(run.compiled.params[0].shape)), 1);
    often.write_param(0, ones);
    EXPECT_TRUE(std::equal(ones.begin(), ones.end(), read_all(often).begin()));
  });
}

// A block in f32 is larger than everything a step needs besides its states: gathered weights lie in
// memory shared by the ranks, gradients take half the bytes.
TEST(ReadParams, NeedsNoMemoryBeyondThePlan) {
  const Overrides wide = {"--model.name=llama",
                          "--model.flavor=debug",
                          "--model.vocab_size=64",
                          "--model.dim=64",
                          "--model.ffn_dim=8192",
                          "--model.n_layers=1",
                          "--training.local_batch_size=1",
                          "--training.seq_len=4",
                          "--training.mixed_precision_param=bfloat16",
                          "--training.mixed_precision_reduce=bfloat16"};
  const PreparedRun run = prepare_run(4, with(wide, mode("fsdp", 4)));
  const Plan& plan = run.compiled.plan;
  ASSERT_LT(plan.arena_bytes - plan.persistent_bytes, 3 * 64 * 8192 * 4);
  std::vector<float> sharded, full;
  on_ranks(run, [&](Communicator& comm) {
    Session session(run.config, run.compiled, comm);
    session.initialize(1);
    if (comm.rank() == 0) {
      sharded = read_all(session);
      return;
    }
    for (size_t i = 0; i < run.compiled.params.size(); ++i) session.read_param(i, {});
  });
  const PreparedRun alone = prepare_run(1, wide);
  Session session(alone.config, alone.compiled);
  session.initialize(1);
  EXPECT_TRUE(sharded == read_all(session));
}

}  // namespace
}  // namespace weft
