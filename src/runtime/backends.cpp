// The one list of backends.
#include <vector>

#include "base/error.h"
#include "runtime/comm/kernels.h"
#include "runtime/comm/nccl/join.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cuda/backend.h"
#include "runtime/device.h"
#include "runtime/null/device.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

// A backend's own kernels and the collectives between its ranks.
template <std::span<const Kernel> (*kOwn)(), std::span<const Kernel> (*kCollectives)()>
std::span<const Kernel> with_collectives() {
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> joined(kOwn().begin(), kOwn().end());
    joined.insert(joined.end(), kCollectives().begin(), kCollectives().end());
    return joined;
  }();
  return kernels;
}

std::span<const Kernel> cuda_kernels() {
  return cuda_backend().kernels();
}

std::vector<Backend> make_list() {
  const auto reference = with_collectives<reference_kernels, peer_kernels>;
  const auto cpu = with_collectives<cpu_kernels, peer_kernels>;
  const auto cuda = with_collectives<cuda_kernels, gpu_comm_kernels>;
  return {
      {.name = "reference", .kernels = reference, .make_device = make_host_device},
      {.name = "cpu", .kernels = cpu, .make_device = make_host_device},
      {.name = "cuda",
       .kernels = cuda,
       .make_device = cuda_backend().make_device,
       .join = join_gpus},
      {.name = "null", .kernels = cpu, .make_device = make_null_device},
  };
}

}  // namespace

std::span<const Backend> all_backends() {
  static const std::vector<Backend> list = make_list();
  return list;
}

const Backend& find_backend(std::string_view name) {
  std::vector<std::string> names;
  for (const Backend& backend : all_backends()) {
    if (backend.name == name) return backend;
    names.emplace_back(backend.name);
  }
  throw UserError(ExitCode::Config,
                  cat("this build has no backend \"", name, "\"; it has ", join(names, ", ")));
}

}  // namespace weft
