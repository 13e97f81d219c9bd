#include "config/device_spec.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "config/derived.h"
#include "config/schema.h"
#include "config/toml_file.h"

namespace weft {
namespace {

constexpr double kLargestBytes = 1e18;

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;

// One row, in microseconds and GB/s as tables list them; reduce_scatter as all_gather.
Link link(int64_t hosts, int64_t ranks, std::array<double, 2> gather, std::array<double, 2> sum) {
  return {.hosts = hosts,
          .ranks = ranks,
          .gather_latency = gather[0] * kMicro,
          .gather_bandwidth = gather[1] * kGiga,
          .scatter_latency = gather[0] * kMicro,
          .scatter_bandwidth = gather[1] * kGiga,
          .sum_latency = sum[0] * kMicro,
          .sum_bandwidth = sum[1] * kGiga};
}

// NVSwitch within a host.
std::vector<Link> nvswitch_links() {
  return {link(1, 2, {8, 537}, {10, 324}), link(1, 4, {17, 434}, {15, 236}),
          link(1, 8, {30, 394}, {31, 267})};
}

// Eight GPUs and eight 400 Gbit/s network cards per host; groups of all GPUs, or one GPU per host.
std::vector<Link> cluster_links() {
  std::vector<Link> links = nvswitch_links();
  const std::vector<Link> across = {
      link(2, 8, {70.0, 409.6}, {53, 266.7}),    link(4, 8, {145.6, 396.4}, {81, 160}),
      link(8, 8, {296.8, 390.1}, {109, 160}),    link(16, 8, {599.2, 387.0}, {137, 160}),
      link(32, 8, {1204.0, 385.5}, {165, 160}),  link(2, 1, {22.4, 96}, {44.8, 48}),
      link(4, 1, {50.4, 64}, {100.8, 32}),       link(8, 1, {106.4, 54.9}, {212.8, 27.45}),
      link(16, 1, {218.4, 51.2}, {436.8, 25.6}), link(32, 1, {442.4, 49.5}, {884.8, 24.75})};
  links.insert(links.end(), across.begin(), across.end());
  return links;
}

// Data sheet numbers of one GPU: dense bf16 matmuls, f32 vector operations, memory bandwidth,
// NVLink in both directions together, memory size.
struct DataSheet {
  double bf16_flops = 0;
  double f32_flops = 0;
  double memory_bandwidth = 0;
  double nvlink_bandwidth = 0;
  int64_t memory_bytes = 0;
};
constexpr DataSheet kH100Sheet{989e12, 67e12, 3.35e12, 900e9, 80'000'000'000};     // SXM
constexpr DataSheet kA100Sheet{312e12, 19.5e12, 2.039e12, 600e9, 80'000'000'000};  // 80 GB SXM
constexpr DataSheet kB200Sheet{2250e12, 75e12, 7.7e12, 1800e9, 180'000'000'000};   // HGX
constexpr DataSheet kGb200Sheet{2500e12, 80e12, 8.0e12, 1800e9, 186'000'000'000};  // NVL72

DeviceSpec h100(const std::string& name, int64_t ranks_per_host, std::vector<Link> links) {
  return {.name = name,
          .matmul_flops_f32 = 50e12,
          .matmul_flops_bf16 = 700e12,
          .peak_flops_f32 = kH100Sheet.f32_flops,
          .peak_flops_bf16 = kH100Sheet.bf16_flops,
          .vector_flops = 30e12,
          .memory_bandwidth = 3.0e12,
          .launch_latency = 3e-6,
          .memory_bytes = kH100Sheet.memory_bytes,
          .context_bytes = 540 << 20,
          .collectives_bytes = 0,
          .matmul_efficiency = 0.85,
          .unaligned_share = 0.74,
          .ranks_per_host = ranks_per_host,
          .links = std::move(links)};
}

DeviceSpec h200(const std::string& name, int64_t ranks_per_host, std::vector<Link> links) {
  DeviceSpec spec = h100(name, ranks_per_host, std::move(links));
  spec.matmul_flops_bf16 = 790e12;
  spec.memory_bandwidth = 4.3e12;
  spec.memory_bytes = 141'000'000'000;
  return spec;
}

// A GPU that was not measured. It is assumed to reach the same fraction of its data sheet as the
// H100 does. Launch latency and library memory are those of the H100.
DeviceSpec scaled_h100(const std::string& name, const DataSheet& sheet, int64_t ranks_per_host,
                       std::vector<Link> links) {
  DeviceSpec spec = h100(name, ranks_per_host, std::move(links));
  spec.peak_flops_f32 = sheet.f32_flops;
  spec.peak_flops_bf16 = sheet.bf16_flops;
  spec.matmul_flops_bf16 *= sheet.bf16_flops / kH100Sheet.bf16_flops;
  spec.matmul_flops_f32 *= sheet.f32_flops / kH100Sheet.f32_flops;
  spec.vector_flops *= sheet.f32_flops / kH100Sheet.f32_flops;
  spec.memory_bandwidth *= sheet.memory_bandwidth / kH100Sheet.memory_bandwidth;
  spec.memory_bytes = sheet.memory_bytes;
  return spec;
}

// The measured NVSwitch of the H100, scaled by the ratio of NVLink bandwidths.
std::vector<Link> scaled_nvswitch_links(const DataSheet& sheet) {
  const double faster = sheet.nvlink_bandwidth / kH100Sheet.nvlink_bandwidth;
  std::vector<Link> links = nvswitch_links();
  for (Link& row : links) {
    for (double Link::*rate :
         {&Link::gather_bandwidth, &Link::scatter_bandwidth, &Link::sum_bandwidth}) {
      row.*rate *= faster;
    }
  }
  return links;
}

// all_reduce as reduce_scatter plus all_gather, for switches that cannot reduce.
Link without_switch_sums(Link row) {
  row.sum_latency = row.scatter_latency + row.gather_latency;
  row.sum_bandwidth = row.gather_bandwidth / 2;
  return row;
}

// A ring over hosts, by the model in NCCL's tuner, which agrees with the measured rows of the H100:
// 8.4 us to start, 3.4 us per hop within a host, 14 us per hop between hosts. Each rank forwards
// `gigabytes` per second.
Link ring_link(int64_t hosts, int64_t ranks, double gigabytes) {
  const auto h = static_cast<double>(hosts), r = static_cast<double>(ranks);
  const double latency = 8.4 + 3.4 * h * (r - 1) + 14 * (h - 1);
  const double bandwidth = gigabytes * (h * r) / (h * r - 1);
  return without_switch_sums(link(hosts, ranks, {latency, bandwidth}, {}));
}

// Rings over 2 to 32 hosts with `ranks` ranks per host, over all ranks or one per host.
void add_rings(int64_t ranks, double gigabytes, std::vector<Link>& links) {
  for (int64_t hosts = 2; hosts <= 32; hosts *= 2) {
    links.push_back(ring_link(hosts, ranks, gigabytes));
  }
}

// Of a 400 Gbit/s card, as in the rows of cluster_links.
constexpr double kCardGigabytes = 48;

// A100: eight GPUs per host on switches that cannot reduce.
std::vector<Link> a100_host_links() {
  std::vector<Link> links = scaled_nvswitch_links(kA100Sheet);
  for (Link& row : links) row = without_switch_sums(row);
  return links;
}

// The same with eight 200 Gbit/s cards per host.
std::vector<Link> a100_cluster_links() {
  std::vector<Link> links = a100_host_links();
  add_rings(8, 8 * kCardGigabytes / 2, links);
  add_rings(1, kCardGigabytes / 2, links);
  return links;
}

// B200: switches twice as fast as the H100's, the same network.
std::vector<Link> b200_cluster_links() {
  std::vector<Link> links = scaled_nvswitch_links(kB200Sheet);
  for (const Link& row : cluster_links()) {
    if (row.hosts > 1) links.push_back(row);
  }
  return links;
}

// GB200 NVL72: the 72 GPUs of one NVLink domain count as a host. A ring over all of them keeps the
// bandwidth of eight, and the switches reduce for 72 as for eight. Between domains, NVLink limits a
// ring over all GPUs; a network card limits a ring with one GPU per domain.
std::vector<Link> gb200_links() {
  std::vector<Link> links = scaled_nvswitch_links(kGb200Sheet);
  const Link eight = links.back();
  const double ring_gigabytes = eight.gather_bandwidth * 7 / 8 / kGiga;
  Link domain = ring_link(1, 72, ring_gigabytes);
  domain.sum_latency = eight.sum_latency;
  domain.sum_bandwidth = eight.sum_bandwidth;
  links.push_back(domain);
  add_rings(72, ring_gigabytes, links);
  add_rings(1, kCardGigabytes, links);
  return links;
}

// Rates are what well-shaped kernels reach; peaks are those of data sheets. Measured on H100 and
// H200, scaled for the other GPUs until weft bench --calibrate has measured them.
const std::vector<DeviceSpec>& built_in_specs() {
  static const std::vector<DeviceSpec> specs = {
      {.name = "cpu",  // two cores with 512-bit vectors; weft bench --calibrate measures others
       .matmul_flops_f32 = 300e9,
       .matmul_flops_bf16 = 300e9,
       .vector_flops = 20e9,
       .memory_bandwidth = 20e9,
       .launch_latency = 2e-6,
       .memory_bytes = 0,
       .context_bytes = 0,
       .collectives_bytes = 0,
       .matmul_efficiency = 0.7,
       .ranks_per_host = 0,
       .ranks_share_memory = true,
       .links = {link(1, 2, {20, 8}, {30, 5}), link(1, 8, {60, 8}, {90, 5})}},
      h100("h100", 8, cluster_links()),
      h100("h100x8", 8, nvswitch_links()),
      h200("h200", 8, cluster_links()),  // the same switches and network as h100
      h200("h200x1", 1, {}),
      scaled_h100("a100", kA100Sheet, 8, a100_cluster_links()),
      scaled_h100("a100x8", kA100Sheet, 8, a100_host_links()),
      scaled_h100("b200", kB200Sheet, 8, b200_cluster_links()),
      scaled_h100("gb200", kGb200Sheet, 72, gb200_links()),
  };
  return specs;
}

// A list of rows, stored as strings in the file. `file_name` appears in messages.
template <class Row>
Key<DeviceSpec> rows_key(const std::string& name, std::vector<Row> DeviceSpec::*rows,
                         Row (*parse)(std::string_view), const std::string& file_name) {
  Key<DeviceSpec> key;
  key.name = name;
  key.rule.type = ValueType::TextList;
  key.get = [rows](const DeviceSpec& spec) {
    std::vector<std::string> texts;
    for (const Row& row : spec.*rows) texts.push_back(to_string(row));
    return ConfigValue(texts);
  };
  key.set = [=](DeviceSpec& spec, const ConfigValue& value) {
    (spec.*rows).clear();
    for (const std::string& text : std::get<std::vector<std::string>>(value)) {
      try {
        (spec.*rows).push_back(parse(text));
      } catch (const UserError& error) {
        throw UserError(error.code(), cat(file_name, ": ", name, ": ", error.what()));
      }
    }
  };
  return key;
}

std::vector<Key<DeviceSpec>> spec_keys(const std::string& file_name) {
  using S = DeviceSpec;
  const Range rate{.above = 0};
  const Range bytes{.at_least = 0, .at_most = kLargestBytes};
  return {
      make_key("name", &S::name, {.doc = "Name shown in plans."}),
      make_key("matmul_flops_f32", &S::matmul_flops_f32,
               {.doc = "FLOP/s of a float32 matmul.", .range = rate}),
      make_key("matmul_flops_bf16", &S::matmul_flops_bf16,
               {.doc = "FLOP/s of a bfloat16 matmul.", .range = rate}),
      make_key("peak_flops_f32", &S::peak_flops_f32,
               {.doc = "FLOP/s of dense float32 matmuls on the data sheet; 0: no data sheet.",
                .range = {.at_least = 0}}),
      make_key("peak_flops_bf16", &S::peak_flops_bf16,
               {.doc = "The same for bfloat16 and float16.", .range = {.at_least = 0}}),
      make_key("vector_flops", &S::vector_flops,
               {.doc = "FLOP/s of all other kernels; 0: only bandwidth limits them.",
                .range = {.at_least = 0}}),
      make_key("memory_bandwidth", &S::memory_bandwidth,
               {.doc = "Bytes/s of a streaming kernel.", .range = rate}),
      make_key("launch_latency", &S::launch_latency,
               {.doc = "Minimum seconds per kernel.", .range = {.at_least = 0}}),
      make_key("memory_bytes", &S::memory_bytes,
               {.doc = "Bytes available to a plan; 0: the memory of this machine.",
                .range = {.at_least = 0, .at_most = kLargestBytes}}),
      make_key("context_bytes", &S::context_bytes,
               {.doc = "Bytes of device memory used by driver, libraries and code on top of it.",
                .range = bytes}),
      make_key("collectives_bytes", &S::collectives_bytes,
               {.doc = "Bytes of device memory used by the collectives library per rank.",
                .range = bytes}),
      make_key(
          "matmul_efficiency", &S::matmul_efficiency,
          {.doc = "Fraction of the matmul rate reached.", .range = {.above = 0, .at_most = 1}}),
      make_key("unaligned_share", &S::unaligned_share,
               {.doc = "Further factor for half-type rows that do not start at multiples of 16 "
                       "bytes, such as rows of 50257 logits.",
                .range = {.above = 0, .at_most = 1}}),
      rows_key("kernels", &S::kernels, parse_kernel_share, file_name),
      make_key("ranks_per_host", &S::ranks_per_host,
               {.doc = "Consecutive ranks per host; 0: all ranks.", .range = {.at_least = 0}}),
      make_key("ranks_share_memory", &S::ranks_share_memory,
               {.doc = "Whether the ranks of a host share one device and its memory."}),
      rows_key("links", &S::links, parse_link, file_name),
  };
}

// Interpolates between two rows; beyond the last one only the latency keeps growing.
Link between(const Link& a, const Link& b, double share) {
  const auto mix = [share](double x, double y) { return x + (y - x) * share; };
  const auto stay = [share](double x, double y) { return x + (y - x) * std::min(share, 1.0); };
  return {.hosts = a.hosts,
          .ranks = a.ranks,
          .gather_latency = mix(a.gather_latency, b.gather_latency),
          .gather_bandwidth = stay(a.gather_bandwidth, b.gather_bandwidth),
          .scatter_latency = mix(a.scatter_latency, b.scatter_latency),
          .scatter_bandwidth = stay(a.scatter_bandwidth, b.scatter_bandwidth),
          .sum_latency = mix(a.sum_latency, b.sum_latency),
          .sum_bandwidth = stay(a.sum_bandwidth, b.sum_bandwidth)};
}

// `rows` in order of `size`; the first row also covers smaller groups.
Link interpolate(const std::vector<Link>& rows, int64_t Link::*size, int64_t wanted) {
  if (rows.size() == 1 || wanted <= rows.front().*size) return rows.front();
  size_t next = 1;
  while (next + 1 < rows.size() && rows[next].*size < wanted) ++next;
  const double begin = static_cast<double>(rows[next - 1].*size);
  const double end = static_cast<double>(rows[next].*size);
  return between(rows[next - 1], rows[next], (static_cast<double>(wanted) - begin) / (end - begin));
}

// The matching rows in order of `size`.
template <class Fits>
std::vector<Link> rows_where(const DeviceSpec& spec, Fits fits, int64_t Link::*size) {
  std::vector<Link> rows;
  std::copy_if(spec.links.begin(), spec.links.end(), std::back_inserter(rows), fits);
  std::stable_sort(rows.begin(), rows.end(),
                   [size](const Link& a, const Link& b) { return a.*size < b.*size; });
  return rows;
}

bool names_a_file(const std::string& text) {
  return text.find('/') != std::string::npos || text.find(".toml") != std::string::npos;
}

// A built-in spec, or the file that device.spec names.
DeviceSpec find_device_spec(const Config& config, std::string_view usual) {
  const std::string wanted = config.device.spec == "auto" ? std::string(usual) : config.device.spec;
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

}  // namespace

int64_t hosts_of(const DeviceSpec& spec, const RankGroup& group) {
  const int64_t host = spec.ranks_per_host;
  if (host == 0) return 1;
  if (group.stride >= host) return group.size;
  const int64_t block = group.size * group.stride;  // ranks spanned by `stride` interleaved groups
  int64_t latest = 0;  // position of a group's first rank on its host; repeats after `host` blocks
  for (int64_t k = 0; k < std::min(group.ranks / block, host); ++k) {
    for (int64_t first = 0; first < group.stride; ++first) {
      latest = std::max(latest, (k * block + first) % host);
    }
  }
  return (latest + (group.size - 1) * group.stride) / host + 1;
}

Link find_link(const DeviceSpec& spec, const RankGroup& group) {
  const Link inside{.gather_latency = spec.launch_latency,
                    .gather_bandwidth = spec.memory_bandwidth / 2,
                    .scatter_latency = spec.launch_latency,
                    .scatter_bandwidth = spec.memory_bandwidth / 2,
                    .sum_latency = spec.launch_latency,
                    .sum_bandwidth = spec.memory_bandwidth / 2};
  if (group.size == 1 || spec.links.empty()) return inside;
  const int64_t hosts = hosts_of(spec, group);
  if (hosts == 1) {
    const auto rows = rows_where(
        spec, [](const Link& row) { return row.hosts == 1; }, &Link::ranks);
    return rows.empty() ? inside : interpolate(rows, &Link::ranks, group.size);
  }
  // Groups with several ranks per host share its network cards, like groups of all ranks.
  const bool several = group.stride < spec.ranks_per_host;
  auto rows = rows_where(
      spec, [&](const Link& row) { return row.hosts > 1 && (row.ranks > 1) == several; },
      &Link::hosts);
  if (rows.empty()) {
    rows = rows_where(
        spec, [](const Link& row) { return row.hosts > 1; }, &Link::hosts);
  }
  CHECK(!rows.empty(), spec.name, " has no link between hosts");
  return interpolate(rows, &Link::hosts, hosts);
}

int64_t ranks_on_host(const DeviceSpec& spec, int64_t ranks) {
  return spec.ranks_per_host == 0 ? ranks : std::min(ranks, spec.ranks_per_host);
}

int64_t memory_of_rank(const DeviceSpec& spec, int64_t memory, int64_t ranks) {
  return spec.ranks_share_memory ? memory / ranks_on_host(spec, ranks) : memory;
}

DeviceSpec device_of_rank(DeviceSpec spec, int64_t ranks) {
  if (spec.memory_bytes > 0 && ranks > 1) {
    spec.memory_bytes = std::max<int64_t>(1, spec.memory_bytes - spec.collectives_bytes);
  }
  if (!spec.ranks_share_memory) return spec;
  const int64_t sharing = ranks_on_host(spec, ranks);
  for (double DeviceSpec::*rate :
       {&DeviceSpec::matmul_flops_f32, &DeviceSpec::matmul_flops_bf16, &DeviceSpec::peak_flops_f32,
        &DeviceSpec::peak_flops_bf16, &DeviceSpec::vector_flops, &DeviceSpec::memory_bandwidth}) {
    spec.*rate /= static_cast<double>(sharing);
  }
  if (spec.memory_bytes > 0) {
    spec.memory_bytes = std::max<int64_t>(1, memory_of_rank(spec, spec.memory_bytes, ranks));
  }
  return spec;
}

const DeviceSpec* find_data_sheet(std::string_view description) {
  const auto names = [&](const std::string& name) {
    const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == b; };
    return std::search(description.begin(), description.end(), name.begin(), name.end(), same) !=
           description.end();
  };
  const DeviceSpec* found = nullptr;
  for (const DeviceSpec& spec : built_in_specs()) {
    const bool better = found == nullptr || spec.name.size() > found->name.size();
    if (spec.peak_flops_bf16 > 0 && better && names(spec.name)) found = &spec;
  }
  return found;
}

std::vector<std::string> device_spec_names() {
  std::vector<std::string> names;
  for (const DeviceSpec& spec : built_in_specs()) {
    names.push_back(spec.name);
  }
  return names;
}

DeviceSpec load_device_spec(const Config& config, std::string_view usual) {
  DeviceSpec spec = find_device_spec(config, usual);
  if (config.device.tf32) spec.matmul_flops_f32 = spec.matmul_flops_bf16 / 2;  // half of bf16
  return spec;
}

DeviceSpec parse_device_spec(std::string_view toml, const std::string& file_name) {
  DeviceSpec spec;
  std::vector<std::string> missing;
  const std::vector<Key<DeviceSpec>> keys = spec_keys(file_name);
  for (const Key<DeviceSpec>& key : keys) {
    missing.push_back(key.name);
  }
  for (const Entry& entry : read_toml(toml, file_name)) {
    apply_entry(keys, entry, spec);
    std::erase(missing, entry.key);
  }
  USER_CHECK(missing.empty(), file_name, ": no value for ", join(missing, ", "),
             "; a device spec sets every key");
  return spec;
}

std::string device_spec_to_toml(const DeviceSpec& spec) {
  std::string out;
  for (const Key<DeviceSpec>& key : spec_keys("")) {
    out += cat(key.name, " = ", value_to_toml(key.get(spec)), "\n");
  }
  return out;
}

}  // namespace weft
