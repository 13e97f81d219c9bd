#include "config/device_spec.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace weft {
namespace {

DeviceSpec spec_for(const std::string& backend, const std::string& spec) {
  Config config;
  config.device.backend = backend;
  config.device.spec = spec;
  return load_device_spec(config);
}

TEST(DeviceSpec, AutoFollowsTheBackend) {
  EXPECT_EQ(spec_for("cpu", "auto").name, "cpu");
  EXPECT_EQ(spec_for("reference", "auto").name, "cpu");
  EXPECT_EQ(spec_for("null", "auto").name, "cpu");
  EXPECT_EQ(spec_for("cuda", "auto").name, "h200");
}

TEST(DeviceSpec, BuiltInNamesAreFoundAndReadBack) {
  for (const std::string& name : device_spec_names()) {
    const DeviceSpec spec = spec_for("null", name);
    EXPECT_EQ(spec.name, name);
    const std::string text = device_spec_to_toml(spec);
    EXPECT_EQ(device_spec_to_toml(parse_device_spec(text, "machine.toml")), text);
    EXPECT_GT(spec.memory_bandwidth, 0);
    EXPECT_EQ(spec.memory_bytes > 0, name != "cpu");  // the cpu is the machine at hand
  }
}

TEST(DeviceSpec, ReadsAFile) {
  const TempFolder folder;
  DeviceSpec spec = spec_for("cpu", "auto");
  spec.name = "mine";
  spec.memory_bytes = 123456789012;
  const std::string path = folder.write("machine.toml", device_spec_to_toml(spec));
  EXPECT_EQ(spec_for("cuda", path).name, "mine");
  EXPECT_EQ(spec_for("cuda", path).memory_bytes, 123456789012);
}

}  // namespace
}  // namespace weft
