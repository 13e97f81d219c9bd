// Weights gathered into memory shared by the ranks: same bits as one copy per rank, in less memory.
#include <gtest/gtest.h>

#include "ranks/modes.h"
#include "support/short_run.h"

namespace weft {
namespace {

// Shared memory is reused within a step, over micro-batches, and by two groups concurrently.
TEST(SharedGather, HasTheBitsOfACopyForEachRank) {
  const std::vector<Overrides> choices = {
      {},
      {"--compile.overlap=false"},
      {"--compile.prefetch=3", "--training.mixed_precision_param=bfloat16"},
      {"--parallelism.fsdp_reshard_after_forward=never", "--training.global_batch_size=16"},
      {"--parallelism.data_parallel_replicate_degree=2", "--compile.bucketing=none"},
  };
  for (const Overrides& choice : choices) {
    SCOPED_TRACE(choice.empty() ? "" : choice.front());
    const ShortRun shared = short_run_on_ranks(4, with(kTiny, choice));
    const ShortRun copies =
        short_run_on_ranks(4, with(with(kTiny, choice), {"--compile.shared_gather=false"}));
    EXPECT_EQ(shared, copies);
    EXPECT_LE(shared.arena_bytes, copies.arena_bytes);
  }
}

}  // namespace
}  // namespace weft
