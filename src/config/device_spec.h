// The facts about a machine that passes and the planner may use. They come from a built-in table or
// a TOML file, never from a probe, so that a plan depends only on its inputs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace weft {

// Performance of collectives over one group of ranks: seconds = latency + bytes / bandwidth, where
// bytes are those of the full tensor (gathered, to be scattered, or to be summed).
struct Link {
  int64_t hosts = 1;  // that the group spans
  int64_t ranks = 1;  // of the group per host
  double gather_latency = 0;
  double gather_bandwidth = 0;  // all_gather
  double scatter_latency = 0;
  double scatter_bandwidth = 0;  // reduce_scatter
  double sum_latency = 0;
  double sum_bandwidth = 0;  // all_reduce

  bool operator==(const Link&) const = default;
};

// Fraction of the limiting rate that the kernels of one op reach: the matmul rate, the vector rate
// or the bandwidth. Above 1 where a cache helps.
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
  // Dense matmul rates on the data sheet, for MFU (docs/metrics.md); 0: no data sheet.
  double peak_flops_f32 = 0;
  double peak_flops_bf16 = 0;
  double vector_flops = 0;  // of everything but matmuls; 0: only bandwidth limits it
  double memory_bandwidth = 0;
  double launch_latency = 0;       // fixed cost of one kernel
  int64_t memory_bytes = 0;        // available to an arena; 0: the memory of this machine
  int64_t context_bytes = 0;       // used by driver, libraries and code on top of it
  int64_t collectives_bytes = 0;   // used by the collectives library; several ranks only
  double matmul_efficiency = 1.0;  // fraction of the matmul rate that ops with matmuls reach
  // A further factor for half-type rows that do not start at multiples of 16 bytes.
  double unaligned_share = 1.0;
  std::vector<KernelShare> kernels = {};  // measured fractions of single ops; take precedence
  int64_t ranks_per_host = 0;             // consecutive ranks; 0: all of them
  bool ranks_share_memory = false;        // the ranks of a host share one device, such as a CPU
  std::vector<Link> links = {};           // empty: no measurements
};

// "hosts=1 ranks=8 gather_latency=3e-05 gather_bandwidth=3.94e+11 scatter_latency=...".
std::string to_string(const Link& link);
// "op=attention dtype=f32 share=0.4".
std::string to_string(const KernelShare& kernel);

// These read what to_string writes and throw UserError(Config).
Link parse_link(std::string_view text);
KernelShare parse_kernel_share(std::string_view text);

// The groups that a mesh axis forms; every rank of the mesh is in one of them.
struct RankGroup {
  int64_t size = 1;
  int64_t stride = 1;  // between neighbouring ranks of a group
  int64_t ranks = 1;   // of the mesh
};

// The most hosts that one of the groups spans. Hosts are filled in rank order, so groups of 6 on
// hosts of 8 do not all start at a host boundary.
int64_t hosts_of(const DeviceSpec& spec, const RankGroup& group);

// The link of these groups: linear between the two rows around their size; beyond the last row the
// latency keeps growing and the bandwidth stays. Without rows, and for a group of one, data moves
// as fast as within the device.
Link find_link(const DeviceSpec& spec, const RankGroup& group);

// How many of `ranks` ranks run on one host.
int64_t ranks_on_host(const DeviceSpec& spec, int64_t ranks);

// The memory of one of `ranks` ranks: all of a device's memory, or an equal share where the ranks
// of a host share one device.
int64_t memory_of_rank(const DeviceSpec& spec, int64_t memory, int64_t ranks);

// The part of the device that one of `ranks` ranks has: all of it except what the collectives
// library takes, or an equal share of rates and memory where the ranks of a host share one device.
DeviceSpec device_of_rank(DeviceSpec spec, int64_t ranks);

// The built-in spec whose name is part of a driver's device description, such as h200 for "NVIDIA
// H200"; nullptr if there is none.
const DeviceSpec* find_data_sheet(std::string_view description);

// Names of the built-in specs.
std::vector<std::string> device_spec_names();

// The spec that device.spec names: "auto" (the backend's usual built-in spec), a built-in name, or
// a TOML file. Throws UserError(Config) when there is none or the file is invalid.
DeviceSpec load_device_spec(const Config& config, std::string_view usual);

// Parses a spec from TOML; every key is required. `file_name` appears in messages.
DeviceSpec parse_device_spec(std::string_view toml, const std::string& file_name);

// The spec as TOML; parse_device_spec reads back the same values.
std::string device_spec_to_toml(const DeviceSpec& spec);

}  // namespace weft
