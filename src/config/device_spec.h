// The facts about a machine that passes and the planner may know. They come from a built-in table
// or a TOML file, never from a probe, so that a plan depends on its inputs alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace weft {

// Achieved rates in FLOP/s and bytes/s, latency in seconds, sizes in bytes.
struct DeviceSpec {
  std::string name = {};
  double matmul_flops_f32 = 0;
  double matmul_flops_bf16 = 0;
  double memory_bandwidth = 0;
  double launch_latency = 0;         // fixed cost of one kernel
  int64_t memory_bytes = 0;          // what an arena may use; 0: the memory of this machine
  double matmul_efficiency = 1.0;    // share of the matmul rate that a matmul of a model reaches
  int64_t gemm_workspace_bytes = 0;  // per stream
};

// Names of the built-in specs.
std::vector<std::string> device_spec_names();

// The spec that device.spec names: "auto" (by backend), a built-in name, or a TOML file.
// Throws UserError(Config) when there is none or the file is wrong.
DeviceSpec load_device_spec(const Config& config);

// The spec in TOML text; every key must be there. `file_name` appears in messages.
DeviceSpec parse_device_spec(std::string_view toml, const std::string& file_name);

// The spec as TOML that parse_device_spec reads back to the same values.
std::string device_spec_to_toml(const DeviceSpec& spec);

}  // namespace weft
