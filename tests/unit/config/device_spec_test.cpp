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

Link link_of(const DeviceSpec& spec, int64_t size, int64_t stride) {
  return find_link(spec, {.size = size, .stride = stride, .ranks = size * stride});
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
    // No kernel reaches the data sheet; the cpu spec has no data sheet.
    EXPECT_TRUE(name == "cpu" || spec.peak_flops_f32 > spec.matmul_flops_f32) << name;
    EXPECT_TRUE(name == "cpu" || spec.peak_flops_bf16 > spec.matmul_flops_bf16) << name;
    EXPECT_EQ(spec.memory_bytes > 0, name != "cpu");  // the cpu spec uses this machine's memory
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

// The H100's measured rates, scaled by the ratio of the data sheets.
TEST(DeviceSpec, GpusThatWereNotMeasuredAreScaledByTheirDataSheets) {
  const DeviceSpec h100 = spec_for("h100");
  const DeviceSpec a100 = spec_for("a100"), b200 = spec_for("b200"), gb200 = spec_for("gb200");
  EXPECT_DOUBLE_EQ(a100.matmul_flops_bf16, h100.matmul_flops_bf16 * (312e12 / 989e12));
  EXPECT_DOUBLE_EQ(a100.memory_bandwidth, h100.memory_bandwidth * (2.039e12 / 3.35e12));
  EXPECT_EQ(a100.memory_bytes, 80'000'000'000);
  EXPECT_DOUBLE_EQ(b200.matmul_flops_bf16, h100.matmul_flops_bf16 * (2250e12 / 989e12));
  EXPECT_DOUBLE_EQ(b200.memory_bandwidth, h100.memory_bandwidth * (7.7e12 / 3.35e12));
  EXPECT_EQ(b200.memory_bytes, 180'000'000'000);
  EXPECT_DOUBLE_EQ(gb200.matmul_flops_bf16, h100.matmul_flops_bf16 * (2500e12 / 989e12));
  EXPECT_EQ(gb200.memory_bytes, 186'000'000'000);
  EXPECT_EQ(gb200.ranks_per_host, 72);
  for (const auto& [spec, bf16] : {std::pair(a100, 312e12), {b200, 2250e12}, {gb200, 2500e12}}) {
    EXPECT_EQ(spec.peak_flops_bf16, bf16);
    EXPECT_LT(spec.matmul_flops_bf16, spec.peak_flops_bf16);
    EXPECT_LT(spec.matmul_flops_f32, spec.peak_flops_f32);
  }
  EXPECT_EQ(find_data_sheet("NVIDIA GB200")->name, "gb200");
  EXPECT_EQ(find_data_sheet("NVIDIA B200")->name, "b200");
  EXPECT_EQ(find_data_sheet("NVIDIA A100-SXM4-80GB")->name, "a100");
}

TEST(DeviceSpec, AnA100AddsInItsGpusNotInItsSwitch) {
  const DeviceSpec spec = spec_for("a100");
  const Link host = link_of(spec, 8, 1);
  EXPECT_DOUBLE_EQ(host.gather_bandwidth, 394e9 * 2 / 3);
  EXPECT_DOUBLE_EQ(host.sum_bandwidth, host.gather_bandwidth / 2);
  EXPECT_DOUBLE_EQ(host.sum_latency, 2 * host.gather_latency);
  EXPECT_EQ(to_string(link_of(spec_for("a100x8"), 8, 1)), to_string(host));
  // Rings over two hosts: eight cards of 24 GB/s, or one.
  EXPECT_NEAR(link_of(spec, 16, 1).gather_bandwidth, 192e9 * 16 / 15, 1);
  EXPECT_NEAR(link_of(spec, 16, 1).gather_latency, 70.0e-6, 1e-12);
  EXPECT_NEAR(link_of(spec, 2, 8).gather_bandwidth, 48e9, 1);
}

TEST(DeviceSpec, AB200HasTwiceTheSwitchAndTheNetworkOfAnH100) {
  const DeviceSpec h100 = spec_for("h100"), b200 = spec_for("b200");
  for (const int64_t ranks : {2, 4, 8}) {
    EXPECT_DOUBLE_EQ(link_of(b200, ranks, 1).gather_bandwidth,
                     2 * link_of(h100, ranks, 1).gather_bandwidth);
    EXPECT_DOUBLE_EQ(link_of(b200, ranks, 1).sum_bandwidth,
                     2 * link_of(h100, ranks, 1).sum_bandwidth);
  }
  EXPECT_EQ(to_string(link_of(b200, 64, 1)), to_string(link_of(h100, 64, 1)));
  EXPECT_EQ(to_string(link_of(b200, 8, 8)), to_string(link_of(h100, 8, 8)));
}

TEST(DeviceSpec, AnNvl72DomainIsOneHost) {
  const DeviceSpec spec = spec_for("gb200");
  const Link domain = link_of(spec, 72, 1);
  EXPECT_NEAR(domain.gather_bandwidth, 2 * 394e9 * 7 / 8 * 72 / 71, 1);
  EXPECT_DOUBLE_EQ(domain.sum_bandwidth, 2 * 267e9);
  EXPECT_EQ(domain.hosts, 1);
  // Two domains: NVLink still carries a ring over all GPUs, a card a ring with one GPU per domain.
  EXPECT_NEAR(link_of(spec, 144, 1).gather_bandwidth, 2 * 394e9 * 7 / 8 * 144 / 143, 1);
  EXPECT_NEAR(link_of(spec, 2, 72).gather_bandwidth, 96e9, 1);
}

// The measured rows between hosts agree with the ring model used for the other devices.
TEST(DeviceSpec, MeasuredRowsBetweenHostsAreRings) {
  for (const Link& row : spec_for("h100").links) {
    if (row.hosts == 1) continue;
    const auto h = static_cast<double>(row.hosts), r = static_cast<double>(row.ranks);
    EXPECT_NEAR(row.gather_latency, (8.4 + 3.4 * h * (r - 1) + 14 * (h - 1)) * 1e-6, 1e-12);
    EXPECT_NEAR(row.gather_bandwidth, 48e9 * r * (h * r) / (h * r - 1), 0.2e9);
  }
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
