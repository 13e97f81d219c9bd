#include "config/device_spec.h"

#include <gtest/gtest.h>

#include <set>

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
    // No kernel reaches the data sheet; which CPU it is, a file cannot know.
    EXPECT_TRUE(name == "cpu" || spec.peak_flops_f32 > spec.matmul_flops_f32) << name;
    EXPECT_TRUE(name == "cpu" || spec.peak_flops_bf16 > spec.matmul_flops_bf16) << name;
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
  EXPECT_EQ(memory_of_rank(spec, 600, 4), 300);
  EXPECT_EQ(memory_of_rank(spec, 600, 1), 600);
  DeviceSpec gpu = spec_for("h100");
  EXPECT_EQ(device_of_rank(gpu, 4).memory_bytes, gpu.memory_bytes);
  EXPECT_EQ(memory_of_rank(gpu, 600, 4), 600);
  gpu.collectives_bytes = 1000;
  EXPECT_EQ(device_of_rank(gpu, 1).memory_bytes, gpu.memory_bytes);
  EXPECT_EQ(device_of_rank(gpu, 4).memory_bytes, gpu.memory_bytes - 1000);
}

TEST(DeviceSpec, AGroupInsideAHostUsesItsSwitch) {
  const DeviceSpec spec = spec_for("h100");
  EXPECT_DOUBLE_EQ(find_link(spec, {8, 1, 64}).gather_bandwidth, 394e9);
  EXPECT_DOUBLE_EQ(find_link(spec, {8, 1, 8}).gather_latency, 30e-6);
  EXPECT_DOUBLE_EQ(find_link(spec, {3, 1, 3}).gather_bandwidth, (537e9 + 434e9) / 2);
  EXPECT_DOUBLE_EQ(find_link(spec, {4, 2, 16}).sum_bandwidth, 236e9);
}

TEST(DeviceSpec, AGroupAcrossHostsUsesTheNetwork) {
  const DeviceSpec spec = spec_for("h100");
  EXPECT_DOUBLE_EQ(find_link(spec, {64, 1, 64}).gather_latency, 296.8e-6);
  EXPECT_DOUBLE_EQ(find_link(spec, {8, 8, 64}).gather_bandwidth, 54.9e9);  // one rank per host
  EXPECT_DOUBLE_EQ(find_link(spec, {512, 1, 512}).gather_bandwidth, 385.5e9);
  EXPECT_GT(find_link(spec, {512, 1, 512}).gather_latency,
            find_link(spec, {256, 1, 256}).gather_latency);
}

// Counted rank by rank: group g of a block of size x stride ranks holds every stride-th of them.
TEST(DeviceSpec, CountsTheHostsOfEveryGroup) {
  DeviceSpec spec;
  for (const int64_t host : {1, 4, 6, 8}) {
    spec.ranks_per_host = host;
    for (const int64_t size : {1, 2, 3, 4, 6, 8, 12}) {
      for (const int64_t stride : {1, 2, 3, 4, 8, 16}) {
        for (const int64_t blocks : {1, 2, 3, 5}) {
          const int64_t block = size * stride, ranks = blocks * block;
          int64_t most = 0;
          for (int64_t first = 0; first < ranks; ++first) {
            if (first % block >= stride) continue;
            std::set<int64_t> hosts;
            for (int64_t i = 0; i < size; ++i) hosts.insert((first + i * stride) / host);
            most = std::max(most, std::ssize(hosts));
          }
          EXPECT_EQ(hosts_of(spec, {size, stride, ranks}), most)
              << size << " ranks " << stride << " apart of " << ranks << " on hosts of " << host;
        }
      }
    }
  }
  spec.ranks_per_host = 0;
  EXPECT_EQ(hosts_of(spec, {512, 1, 512}), 1);
}

TEST(DeviceSpec, AGroupThatStraddlesHostsUsesTheNetwork) {
  const DeviceSpec spec = spec_for("h100");
  EXPECT_DOUBLE_EQ(find_link(spec, {6, 1, 6}).gather_bandwidth, (434e9 + 394e9) / 2);
  EXPECT_DOUBLE_EQ(find_link(spec, {6, 1, 12}).gather_latency, 70e-6);  // ranks 6 to 11
  EXPECT_DOUBLE_EQ(find_link(spec, {6, 1, 12}).gather_bandwidth, 409.6e9);
}

TEST(DeviceSpec, AnyRowOfSeveralHostsIsNearerThanOneOfAHost) {
  DeviceSpec spec;
  spec.ranks_per_host = 4;
  spec.links = {{.hosts = 1, .ranks = 4, .gather_bandwidth = 100e9},
                {.hosts = 2, .ranks = 1, .gather_bandwidth = 5e9}};
  EXPECT_DOUBLE_EQ(find_link(spec, {8, 1, 8}).gather_bandwidth, 5e9);
}

TEST(DeviceSpec, AGroupOfOneMovesDataInsideTheDevice) {
  const DeviceSpec spec = spec_for("h200x1");
  EXPECT_DOUBLE_EQ(find_link(spec, {1, 1, 1}).gather_bandwidth, 4.3e12 / 2);
}

}  // namespace
}  // namespace weft
