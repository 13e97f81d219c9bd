// Overlap on a slow link: measured, so it runs alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "ranks/modes.h"
#include "support/short_run.h"

namespace weft {
namespace {

struct TimedRun {
  ShortRun run;
  double seconds = 0;
};

// The faster of two runs: other programs may take the cores for a while.
TimedRun timed_run(const Overrides& overrides, int64_t steps) {
  TimedRun best;
  for (int i = 0; i < 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    best.run = short_run_on_ranks(2, overrides, steps);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best.seconds = i == 0 ? took.count() : std::min(best.seconds, took.count());
  }
  return best;
}

// On a link that takes about as long as the computation, overlap hides much of it.
TEST(SlowLink, OverlapHidesASlowLink) {
  constexpr int64_t kSteps = 6;
  const Overrides model = {"--model.name=gpt2", "--model.n_layers=6", "--model.dim=128",
                           "--training.local_batch_size=4", "--training.seq_len=64"};
  const TimedRun free = timed_run(model, kSteps);
  // Each step gathers the weights twice and reduces the gradients once, half of them each.
  const double bytes = 6.0 * static_cast<double>(free.run.params.size());
  const double bandwidth = bytes * static_cast<double>(kSteps) / free.seconds;
  const Overrides slow = with(model, {"--comm.link_bandwidth=" + std::to_string(bandwidth)});
  const TimedRun on = timed_run(slow, kSteps);
  const TimedRun off = timed_run(with(slow, {"--compile.overlap=false"}), kSteps);
  EXPECT_EQ(on.run, free.run);
  EXPECT_EQ(off.run, free.run);
  // Hidden completely, a step would take half the time.
  EXPECT_LT(on.seconds, 0.85 * off.seconds) << "without a link: " << free.seconds << " s";
}

}  // namespace
}  // namespace weft
