// Overlap takes memory: gathered weights wait for their use, gradients for their reduction. The
// plan stays within the device's memory.
#include <gtest/gtest.h>

#include "config/device_spec.h"
#include "ranks/modes.h"
#include "support/short_run.h"
#include "support/temp_folder.h"

namespace weft {
namespace {

// The plan of a run on a device with this much memory.
Plan plan_on_device(int64_t memory, int64_t prefetch) {
  const TempFolder folder;
  DeviceSpec device = load_device_spec({}, "cpu");
  device.memory_bytes = memory;
  device.ranks_share_memory = false;  // per rank
  folder.write("device.toml", device_spec_to_toml(device));
  return prepare_run(4, with(kTiny, {"--model.dim=64", "--model.n_layers=8",
                                     cat("--compile.prefetch=", prefetch),
                                     "--device.spec=" + folder / "device.toml"}))
      .compiled.plan;
}

TEST(MemoryLimit, OverlapStaysWithinTheMemoryOfTheDevice) {
  constexpr int64_t kPlenty = int64_t{1} << 40;
  const int64_t least = plan_on_device(1, 0).arena_bytes;
  const int64_t most = plan_on_device(kPlenty, 6).arena_bytes;
  ASSERT_GT(most, least);
  for (const int64_t prefetch : {6, -1}) {
    for (int64_t i = 0; i <= 8; ++i) {
      const int64_t limit = least + (most - least) * i / 8;
      EXPECT_LE(plan_on_device(limit, prefetch).arena_bytes, limit) << prefetch << ", " << i;
    }
  }
}

}  // namespace
}  // namespace weft
