// The list of all backends.
#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/one_of.h"
#include "runtime/comm/kernels.h"
#include "runtime/comm/nccl/connect.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cuda/device/backend.h"
#include "runtime/device.h"
#include "runtime/null/device.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

// A backend's own kernels and the collectives between its ranks.
template <std::span<const Kernel> (*kOwn)(), std::span<const Kernel> (*kCollectives)()>
std::span<const Kernel> with_collectives() {
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> all(kOwn().begin(), kOwn().end());
    all.insert(all.end(), kCollectives().begin(), kCollectives().end());
    return all;
  }();
  return kernels;
}

std::span<const Kernel> cuda_kernels() {
  return cuda_backend().kernels();
}

// For backends whose ranks exchange data through host memory.
constexpr std::array<std::string_view, 3> kHostKeys = {"compile.shared_gather",
                                                       "comm.link_bandwidth", "comm.link_latency"};
constexpr std::array<std::string_view, 4> kCpuKeys = {
    "compile.shared_gather", "comm.link_bandwidth", "comm.link_latency", "device.threads"};
constexpr std::array<std::string_view, 6> kCudaKeys = {"comm.reduction",      "device.cuda_graph",
                                                       "device.step_by_step", "device.share_gpu",
                                                       "device.tf32",         "device.tuning"};

std::vector<Backend> make_list() {
  const auto reference = with_collectives<reference_kernels, peer_kernels>;
  const auto cpu = with_collectives<cpu_kernels, peer_kernels>;
  const auto cuda = with_collectives<cuda_kernels, gpu_comm_kernels>;
  return {
      {.name = "reference",
       .kernels = reference,
       .make_device = make_host_device,
       .own_keys = kHostKeys},
      {.name = "cpu", .kernels = cpu, .make_device = make_host_device, .own_keys = kCpuKeys},
      {.name = "cuda",
       .kernels = cuda,
       .make_device = cuda_backend().make_device,
       .connect = connect_gpus,
       .spec = "h200",
       .own_keys = kCudaKeys},
      {.name = "null",
       .kernels = cpu,
       .make_device = make_null_device,
       .own_keys = kHostKeys,
       .computes = false},
  };
}

}  // namespace

std::span<const Backend> all_backends() {
  static const std::vector<Backend> list = make_list();
  return list;
}

const Backend& find_backend(std::string_view name) {
  const std::span<const Backend> list = all_backends();
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const Backend& backend) { return backend.name == name; });
  CHECK(at != list.end(), name);
  return *at;
}

const Backend& find_computing_backend(std::string_view name, const std::string& subject) {
  std::vector<std::string> names;
  const Backend* found = nullptr;
  for (const Backend& backend : all_backends()) {
    if (backend.name == name) found = &backend;
    if (backend.computes) names.push_back(in_quotes(backend.name));
  }
  USER_CHECK(found != nullptr, subject, " is unknown, expected ", one_of(names));
  USER_CHECK(found->computes, subject, " computes nothing and is for weft plan only, expected ",
             one_of(names));
  return *found;
}

}  // namespace weft
