#include "runtime/comm/kernels.h"

#include "base/error.h"
#include "runtime/comm/communicator.h"

namespace weft {
namespace {

Communicator& comm(const Launch& launch) {
  CHECK(launch.comm != nullptr, "a collective in a run without a communicator");
  return *launch.comm;
}

CollectiveSite site(const Launch& launch) {
  return {launch.call->text_attr("axis"), launch.channel};
}

Decision supports_floating(const Call& call) {
  for (const auto* types : {&call.operands, &call.results}) {
    for (const TensorType& type : *types) {
      const DType dtype = type.dtype;
      if (dtype != DType::F32 && dtype != DType::BF16 && dtype != DType::F16) {
        return Decision::no(cat("takes f32, bf16 and f16, found ", to_string(type)));
      }
    }
  }
  return Decision::yes();
}

Decision supports_sum(const Call& call) {
  for (const TensorType& type : call.operands) {
    if (type.dtype == DType::F64 || type.dtype == DType::I32) {
      return Decision::no(cat("takes f32, bf16, f16 and i64, found ", to_string(type)));
    }
  }
  return Decision::yes();
}

void all_gather(const Launch& launch) {
  comm(launch).all_gather(site(launch), launch.operands.at(0), launch.results);
}

void reduce_scatter(const Launch& launch) {
  comm(launch).reduce_scatter(site(launch), launch.operands, launch.results.at(0));
}

void all_reduce(const Launch& launch) {
  for (size_t i = 0; i < launch.results.size(); ++i) {
    CHECK(launch.operands.at(i).data == launch.results[i].data, "all_reduce works in place");
  }
  comm(launch).all_reduce(site(launch), launch.results);
}

constexpr Kernel gather_row(std::string_view op) {
  return {.op = op,
          .name = "peer_all_gather",
          .supports = supports_floating,
          .launch = all_gather,
          .common_results = true};
}

constexpr Kernel scatter_row(std::string_view op) {
  return {.op = op,
          .name = "peer_reduce_scatter",
          .supports = supports_floating,
          .launch = reduce_scatter};
}

constexpr Kernel reduce_row(std::string_view op) {
  return {.op = op, .name = "peer_all_reduce", .supports = supports_sum, .launch = all_reduce};
}

// A start runs like the whole: its stream goes on beside the computation.
constexpr Kernel kKernels[] = {
    gather_row("all_gather"),      gather_row("all_gather_start"),
    scatter_row("reduce_scatter"), scatter_row("reduce_scatter_start"),
    reduce_row("all_reduce"),      reduce_row("all_reduce_start"),
};

}  // namespace

std::span<const Kernel> comm_kernels() {
  return kKernels;
}

}  // namespace weft
