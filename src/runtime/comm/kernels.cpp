#include "runtime/comm/kernels.h"

#include "base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/flat_layout.h"

namespace weft {
namespace {

Communicator& comm(const Launch& launch) {
  CHECK(launch.comm != nullptr, "a collective in a run without a communicator");
  return *launch.comm;
}

CollectiveSite site(const Launch& launch, bool ordered = true) {
  return {.axis = launch.call->text_attr("axis"),
          .channel = launch.channel,
          .stream = launch.stream,
          .ordered = ordered,
          .workspace = launch.workspace};
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

template <bool kOrdered>
void reduce_scatter(const Launch& launch) {
  comm(launch).reduce_scatter(site(launch, kOrdered), launch.operands, launch.results.at(0));
}

template <bool kOrdered>
void all_reduce(const Launch& launch) {
  for (size_t i = 0; i < launch.results.size(); ++i) {
    CHECK(launch.operands.at(i).data == launch.results[i].data, "all_reduce works in place");
  }
  comm(launch).all_reduce(site(launch, kOrdered), launch.results);
}

// A library sums in the type of its operands.
Decision supports_library_sum(const Call& call) {
  for (const auto* types : {&call.operands, &call.results}) {
    for (const TensorType& type : *types) {
      if (type.dtype != DType::F32) {
        return Decision::no(cat("sums in f32, found ", to_string(type)));
      }
    }
  }
  return Decision::yes();
}

Decision supports_exact_sum(const Call& call) {
  for (const TensorType& type : call.operands) {
    if (type.dtype != DType::I64) return Decision::no(cat("takes i64, found ", to_string(type)));
  }
  return Decision::yes();
}

int64_t ordered_scatter_workspace(const Call& call, int64_t ranks) {
  return scatter_workspace(call.type(0).dtype, call.results.at(0).elements(), ranks);
}

int64_t ordered_sum_workspace(const Call& call, int64_t ranks) {
  std::vector<Tensor> members;
  for (const TensorType& type : call.operands) members.push_back({nullptr, type.dtype, type.shape});
  return sum_workspace(call.type(0).dtype, flat_end(members), ranks);
}

constexpr Kernel gather_row(std::string_view op) {
  return {.op = op,
          .name = "peer_all_gather",
          .supports = supports_floating,
          .launch = all_gather,
          .shared_results = true};
}

constexpr Kernel scatter_row(std::string_view op) {
  return {.op = op,
          .name = "peer_reduce_scatter",
          .supports = supports_floating,
          .launch = reduce_scatter<true>};
}

constexpr Kernel reduce_row(std::string_view op) {
  return {
      .op = op, .name = "peer_all_reduce", .supports = supports_sum, .launch = all_reduce<true>};
}

constexpr Kernel kPeerKernels[] = {
    gather_row("all_gather"),
    scatter_row("reduce_scatter"),
    reduce_row("all_reduce"),
};

constexpr Kernel kGpuKernels[] = {
    {.op = "all_gather",
     .name = "nccl_all_gather",
     .supports = supports_floating,
     .launch = all_gather},
    {.op = "reduce_scatter",
     .name = "nccl_reduce_scatter",
     .supports = supports_library_sum,
     .launch = reduce_scatter<false>,
     .any_order = true},
    {.op = "reduce_scatter",
     .name = "ordered_reduce_scatter",
     .supports = supports_floating,
     .launch = reduce_scatter<true>,
     .group_workspace = ordered_scatter_workspace},
    {.op = "all_reduce",
     .name = "exact_all_reduce",
     .supports = supports_exact_sum,
     .launch = all_reduce<false>},
    {.op = "all_reduce",
     .name = "nccl_all_reduce",
     .supports = supports_library_sum,
     .launch = all_reduce<false>,
     .any_order = true},
    {.op = "all_reduce",
     .name = "ordered_all_reduce",
     .supports = supports_floating,
     .launch = all_reduce<true>,
     .group_workspace = ordered_sum_workspace},
};

}  // namespace

std::span<const Kernel> peer_kernels() {
  return kPeerKernels;
}

std::span<const Kernel> gpu_comm_kernels() {
  return kGpuKernels;
}

}  // namespace weft
