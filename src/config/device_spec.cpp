#include "config/device_spec.h"

#include "base/error.h"
#include "base/text.h"
#include "config/derived.h"
#include "config/schema.h"
#include "config/toml_file.h"

namespace weft {
namespace {

constexpr double kLargestBytes = 1e18;

// Rates are what well-shaped kernels reach, not what a data sheet promises.
const std::vector<DeviceSpec>& built_in_specs() {
  static const std::vector<DeviceSpec> specs = {
      {.name = "cpu",  // two cores with 512-bit vectors; bf16 is emulated
       .matmul_flops_f32 = 300e9,
       .matmul_flops_bf16 = 10e9,
       .memory_bandwidth = 20e9,
       .launch_latency = 2e-6,
       .memory_bytes = 0,
       .matmul_efficiency = 0.7,
       .gemm_workspace_bytes = 0},
      {.name = "h100",
       .matmul_flops_f32 = 50e12,
       .matmul_flops_bf16 = 700e12,
       .memory_bandwidth = 3.0e12,
       .launch_latency = 3e-6,
       .memory_bytes = 80'000'000'000,
       .matmul_efficiency = 0.85,
       .gemm_workspace_bytes = 32 << 20},
      {.name = "h200",
       .matmul_flops_f32 = 50e12,
       .matmul_flops_bf16 = 790e12,
       .memory_bandwidth = 4.3e12,
       .launch_latency = 3e-6,
       .memory_bytes = 141'000'000'000,
       .matmul_efficiency = 0.85,
       .gemm_workspace_bytes = 32 << 20},
  };
  return specs;
}

std::vector<Key<DeviceSpec>> make_spec_keys() {
  using S = DeviceSpec;
  const Range rate{.above = 0};
  const Range bytes{.at_least = 0, .at_most = kLargestBytes};
  return {
      make_key("name", &S::name, {.doc = "Name shown in plans."}),
      make_key("matmul_flops_f32", &S::matmul_flops_f32,
               {.doc = "FLOP/s of a float32 matmul.", .range = rate}),
      make_key("matmul_flops_bf16", &S::matmul_flops_bf16,
               {.doc = "FLOP/s of a bfloat16 matmul.", .range = rate}),
      make_key("memory_bandwidth", &S::memory_bandwidth,
               {.doc = "Bytes/s of a streaming kernel.", .range = rate}),
      make_key("launch_latency", &S::launch_latency,
               {.doc = "Seconds that one kernel costs at least.", .range = {.at_least = 0}}),
      make_key("memory_bytes", &S::memory_bytes,
               {.doc = "Bytes that a plan may use; 0: the memory of this machine.",
                .range = {.at_least = 0, .at_most = kLargestBytes}}),
      make_key("matmul_efficiency", &S::matmul_efficiency,
               {.doc = "Share of the matmul rate reached.", .range = {.above = 0, .at_most = 1}}),
      make_key("gemm_workspace_bytes", &S::gemm_workspace_bytes,
               {.doc = "Bytes of matmul workspace per stream.", .range = bytes}),
  };
}

const std::vector<Key<DeviceSpec>>& spec_keys() {
  static const std::vector<Key<DeviceSpec>> keys = make_spec_keys();
  return keys;
}

bool names_a_file(const std::string& text) {
  return text.find('/') != std::string::npos || text.find(".toml") != std::string::npos;
}

}  // namespace

std::vector<std::string> device_spec_names() {
  std::vector<std::string> names;
  for (const DeviceSpec& spec : built_in_specs()) {
    names.push_back(spec.name);
  }
  return names;
}

DeviceSpec load_device_spec(const Config& config) {
  std::string wanted = config.device.spec;
  if (wanted == "auto") {
    wanted = config.device.backend == "cuda" ? "h200" : "cpu";
  }
  for (const DeviceSpec& spec : built_in_specs()) {
    if (spec.name == wanted) {
      return spec;
    }
  }
  USER_CHECK(names_a_file(wanted), describe_key(config, "device.spec"),
             " is unknown, expected \"auto\", ", join(device_spec_names(), ", "),
             " or the path of a TOML file");
  return parse_device_spec(read_config_file(wanted), wanted);
}

DeviceSpec parse_device_spec(std::string_view toml, const std::string& file_name) {
  DeviceSpec spec;
  std::vector<std::string> missing;
  for (const Key<DeviceSpec>& key : spec_keys()) {
    missing.push_back(key.name);
  }
  for (const Entry& entry : read_toml(toml, file_name)) {
    apply_entry(spec_keys(), entry, spec);
    std::erase(missing, entry.key);
  }
  USER_CHECK(missing.empty(), file_name, ": no value for ", join(missing, ", "),
             "; a device spec states every key");
  return spec;
}

std::string device_spec_to_toml(const DeviceSpec& spec) {
  std::string out;
  for (const Key<DeviceSpec>& key : spec_keys()) {
    out += cat(key.name, " = ", value_to_toml(key.get(spec)), "\n");
  }
  return out;
}

}  // namespace weft
