// Measures a device into a spec.
#include "tools/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/ops/ops.h"
#include "graph/samples.h"
#include "runtime/kernel_timer.h"

namespace weft {
namespace {

TEST(FitLink, FindsLatencyAndBandwidth) {
  const LatencyBandwidth exact = fit_link({{1e3, 3e-6}, {1e6, 1e-3 + 2e-6}, {4e6, 4e-3 + 2e-6}});
  EXPECT_NEAR(exact.latency, 2e-6, 1e-12);
  EXPECT_NEAR(exact.bandwidth, 1e9, 1);
}

TEST(FitLink, CountsErrorsInProportion) {
  // A large transfer that is 10 % too slow must barely change the latency.
  const LatencyBandwidth found = fit_link({{1e3, 2e-6}, {2e3, 3e-6}, {1e9, 1.1}});
  EXPECT_NEAR(found.latency, 1e-6, 0.2e-6);
  EXPECT_NEAR(found.bandwidth, 1e9, 0.11e9);
}

TEST(FitLink, NeverGivesANegativeLatency) {
  const LatencyBandwidth found = fit_link({{1e3, 1e-6}, {1e6, 2e-3}});
  EXPECT_EQ(found.latency, 0);
  EXPECT_GT(found.bandwidth, 0);
}

TEST(KernelTimer, TimesTheKernelThatAPlanWouldChoose) {
  const Backend& cpu = find_backend("cpu");
  const auto device = cpu.make_device({.threads = 1});
  KernelTimer timer(cpu.kernels(), cpu.name, *device);
  // The best of three: other programs may occupy the core for a while.
  const auto seconds = [&](const OpDef& op, const std::string& operands) {
    const Call call = parse_samples(op, operands).front();
    return std::min({timer.seconds(call), timer.seconds(call), timer.seconds(call)});
  };
  const double small = seconds(kMatmul, "a: f32[32,32], b: f32[32,32]");
  const double large = seconds(kMatmul, "a: f32[256,256], b: f32[256,256]");
  EXPECT_GT(small, 0);
  EXPECT_GT(large, 8 * small);  // 512 times the work
  EXPECT_GT(seconds(kCrossEntropy, "logits: f32[8,64], targets: i32[8], count: f32[]"), 0);
}

}  // namespace
}  // namespace weft
