#include "config/device_spec.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace weft {
namespace {

DeviceSpec spec_for(const std::string& spec) {
  Config config;
  config.device.spec = spec;
  return load_device_spec(config, "cpu");
}

TEST(DeviceSpec, AutoIsWhatIsUsual) {
  EXPECT_EQ(spec_for("auto").name, "cpu");
  EXPECT_EQ(load_device_spec({}, "h200").name, "h200");
}

TEST(DeviceSpec, BuiltInNamesAreFoundAndReadBack) {
  for (const std::string& name : device_spec_names()) {
    const DeviceSpec spec = spec_for(name);
    EXPECT_EQ(spec.name, name);
    const std::string text = device_spec_to_toml(spec);
    EXPECT_EQ(device_spec_to_toml(parse_device_spec(text, "machine.toml")), text);
    EXPECT_GT(spec.memory_bandwidth, 0);
    EXPECT_EQ(spec.memory_bytes > 0, name != "cpu");  // the cpu is the machine at hand
  }
}

TEST(DeviceSpec, ReadsAFile) {
  const TempFolder folder;
  DeviceSpec spec = spec_for("auto");
  spec.name = "mine";
  spec.memory_bytes = 123456789012;
  const std::string path = folder.write("machine.toml", device_spec_to_toml(spec));
  EXPECT_EQ(spec_for(path).name, "mine");
  EXPECT_EQ(spec_for(path).memory_bytes, 123456789012);
}

TEST(DeviceSpec, LinksAreReadBack) {
  for (const Link& link : spec_for("h100").links) {
    EXPECT_EQ(parse_link(to_string(link)), link);
  }
}

TEST(DeviceSpec, KernelsAreReadBack) {
  const KernelShare kernel{"attention", "bf16", 0.375};
  EXPECT_EQ(parse_kernel_share(to_string(kernel)), kernel);
}

TEST(DeviceSpec, RanksShareWhatIsOneDevice) {
  DeviceSpec spec = spec_for("auto");
  spec.memory_bytes = 4000;
  const DeviceSpec quarter = device_of_rank(spec, 4);
  EXPECT_EQ(quarter.memory_bytes, 1000);
  EXPECT_DOUBLE_EQ(quarter.matmul_flops_f32, spec.matmul_flops_f32 / 4);
  EXPECT_DOUBLE_EQ(quarter.memory_bandwidth, spec.memory_bandwidth / 4);
  spec.ranks_per_host = 2;
  EXPECT_EQ(device_of_rank(spec, 4).memory_bytes, 2000);
  DeviceSpec gpu = spec_for("h100");
  EXPECT_EQ(device_of_rank(gpu, 4).memory_bytes, gpu.memory_bytes);
  gpu.collectives_bytes = 1000;
  EXPECT_EQ(device_of_rank(gpu, 1).memory_bytes, gpu.memory_bytes);
  EXPECT_EQ(device_of_rank(gpu, 4).memory_bytes, gpu.memory_bytes - 1000);
}

TEST(DeviceSpec, AGroupInsideAHostUsesItsSwitch) {
  const DeviceSpec spec = spec_for("h100");
  EXPECT_DOUBLE_EQ(find_link(spec, 8, 1).gather_bandwidth, 394e9);
  EXPECT_DOUBLE_EQ(find_link(spec, 8, 1).gather_latency, 30e-6);
  EXPECT_DOUBLE_EQ(find_link(spec, 3, 1).gather_bandwidth, (537e9 + 434e9) / 2);
  EXPECT_DOUBLE_EQ(find_link(spec, 4, 2).sum_bandwidth, 236e9);
}

TEST(DeviceSpec, AGroupAcrossHostsUsesTheNetwork) {
  const DeviceSpec spec = spec_for("h100");
  EXPECT_DOUBLE_EQ(find_link(spec, 64, 1).gather_latency, 296.8e-6);
  EXPECT_DOUBLE_EQ(find_link(spec, 8, 8).gather_bandwidth, 54.9e9);  // one rank on each host
  EXPECT_DOUBLE_EQ(find_link(spec, 512, 1).gather_bandwidth, 385.5e9);
  EXPECT_GT(find_link(spec, 512, 1).gather_latency, find_link(spec, 256, 1).gather_latency);
}

TEST(DeviceSpec, AGroupOfOneMovesDataInsideTheDevice) {
  const DeviceSpec spec = spec_for("h200x1");
  EXPECT_DOUBLE_EQ(find_link(spec, 1, 1).gather_bandwidth, 4.3e12 / 2);
}

}  // namespace
}  // namespace weft
