// The facts about a machine that passes and the planner may know. They come from a built-in table
// or a TOML file, never from a probe, so that a plan depends on its inputs alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace weft {

// What collectives over one group of ranks reach: seconds = latency + bytes / bandwidth, where
// bytes are those of the whole tensor (gathered, to be scattered, or to be summed).
struct Link {
  int64_t hosts = 1;  // over which the group spreads
  int64_t ranks = 1;  // of the group on each of them
  double gather_latency = 0;
  double gather_bandwidth = 0;  // all_gather
  double scatter_latency = 0;
  double scatter_bandwidth = 0;  // reduce_scatter
  double sum_latency = 0;
  double sum_bandwidth = 0;  // all_reduce

  bool operator==(const Link&) const = default;
};

// What the kernels of one op reach of the rate that bounds them: of the matmul rate, the vector
// rate or the bandwidth. Above 1 where a cache helps.
struct KernelShare {
  std::string op = {};
  std::string dtype = {};  // of its largest floating operand, as graphs write it: "f32"
  double share = 1;

  bool operator==(const KernelShare&) const = default;
};

// Achieved rates in FLOP/s and bytes/s, latency in seconds, sizes in bytes.
struct DeviceSpec {
  std::string name = {};
  double matmul_flops_f32 = 0;
  double matmul_flops_bf16 = 0;
  // The data sheet's rates of dense matmuls, for MFU (docs/metrics.md); 0: there is no data sheet.
  double peak_flops_f32 = 0;
  double peak_flops_bf16 = 0;
  double vector_flops = 0;  // of everything but matmuls; 0: bandwidth alone bounds it
  double memory_bandwidth = 0;
  double launch_latency = 0;       // fixed cost of one kernel
  int64_t memory_bytes = 0;        // what an arena may use; 0: the memory of this machine
  int64_t context_bytes = 0;       // what driver, libraries and code take beside it
  int64_t collectives_bytes = 0;   // and, among ranks, the library of collectives
  double matmul_efficiency = 1.0;  // share of the matmul rate that ops with matmuls reach
  // And of that again where half-type rows do not begin at multiples of 16 bytes.
  double unaligned_share = 1.0;
  std::vector<KernelShare> kernels = {};  // measured shares of single ops, instead of that
  int64_t ranks_per_host = 0;             // neighbours in the order of ranks; 0: all of them
  bool common_memory = false;             // the ranks of a host share one device, as a CPU is
  std::vector<Link> links = {};           // empty: there are no measurements
};

// "hosts=1 ranks=8 gather_latency=3e-05 gather_bandwidth=3.94e+11 scatter_latency=...".
std::string to_string(const Link& link);
// "op=attention dtype=f32 share=0.4".
std::string to_string(const KernelShare& kernel);

// These read what to_string writes; they throw UserError(Config).
Link parse_link(std::string_view text);
KernelShare parse_kernel_share(std::string_view text);

// The groups that an axis of a mesh makes: all ranks of the mesh are in one of them.
struct RankGroup {
  int64_t size = 1;
  int64_t stride = 1;  // from one rank of a group to its next
  int64_t ranks = 1;   // of the mesh
};

// The most hosts that one of the groups spreads over. Hosts are filled in the order of ranks, so
// groups of 6 on hosts of 8 do not all begin where a host does.
int64_t hosts_of(const DeviceSpec& spec, const RankGroup& group);

// The link of such groups: linear between the two rows around their size, beyond the last row the
// latency grows on and the bandwidth stays. Without rows, and for a group of one, data moves as
// fast as inside the device.
Link find_link(const DeviceSpec& spec, const RankGroup& group);

// How many of so many ranks a host has.
int64_t ranks_on_host(const DeviceSpec& spec, int64_t ranks);

// What one of so many ranks has of a device's memory: its share where the ranks of a host share
// one, else all of it.
int64_t memory_of_rank(const DeviceSpec& spec, int64_t memory, int64_t ranks);

// The part of the device that one of so many ranks has: all of it but what the library of
// collectives takes, or its share of the rates and the memory where the ranks of a host share one.
DeviceSpec device_of_rank(DeviceSpec spec, int64_t ranks);

// The data sheet of the device that a driver calls so: the built-in spec whose name is part of the
// description, as h200 of "NVIDIA H200"; nullptr where there is none.
const DeviceSpec* find_data_sheet(std::string_view description);

// Names of the built-in specs.
std::vector<std::string> device_spec_names();

// The spec that device.spec names: "auto" (the built-in one that is usual for the backend), a
// built-in name, or a TOML file. Throws UserError(Config) when there is none or the file is wrong.
DeviceSpec load_device_spec(const Config& config, std::string_view usual);

// The spec in TOML text; every key must be there. `file_name` appears in messages.
DeviceSpec parse_device_spec(std::string_view toml, const std::string& file_name);

// The spec as TOML that parse_device_spec reads back to the same values.
std::string device_spec_to_toml(const DeviceSpec& spec);

}  // namespace weft
