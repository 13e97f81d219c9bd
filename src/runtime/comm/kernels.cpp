#include "runtime/comm/kernels.h"

#include <type_traits>

#include "base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/dim_layout.h"
#include "runtime/comm/flat_layout.h"
#include "runtime/comm/transfer.h"

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

// Flat collectives have rows of their own, and so do those along a dim.
Decision supports_flat(const Call& call) {
  if (call.int_attr("dim") < 0) return Decision::yes();
  return Decision::no("takes flat tensors, found dim");
}

Decision supports_dim(const Call& call) {
  if (call.int_attr("dim") >= 0) return Decision::yes();
  return Decision::no("takes shards along a dim, found no dim");
}

// Both, or the reason of the first that refuses.
template <Decision (*kFirst)(const Call&), Decision (*kSecond)(const Call&)>
Decision supports_both(const Call& call) {
  Decision first = kFirst(call);
  return first.allowed ? kSecond(call) : first;
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

void all_gather_dim(const Launch& launch) {
  comm(launch).all_gather_dim(site(launch), launch.operands.at(0), launch.results.at(0),
                              launch.call->int_attr("dim"));
}

template <bool kOrdered>
void reduce_scatter_dim(const Launch& launch) {
  comm(launch).reduce_scatter_dim(site(launch, kOrdered), launch.operands.at(0),
                                  launch.results.at(0), launch.call->int_attr("dim"));
}

template <bool kOrdered>
void all_reduce(const Launch& launch) {
  for (size_t i = 0; i < launch.results.size(); ++i) {
    CHECK(launch.operands.at(i).data == launch.results[i].data, "all_reduce works in place");
  }
  comm(launch).all_reduce(site(launch, kOrdered), launch.results);
}

AllToAll all_to_all_of(const Call& call, size_t i, int64_t ranks) {
  return {call.type(i).shape,
          call.results.at(i).shape,
          {.from = call.int_attr("from"), .to = call.int_attr("to")},
          call.text_attr("axis"),
          ranks};
}

Shift shift_of(const Call& call, size_t i, int64_t ranks) {
  return {call.type(i).elements(), call.int_attr("steps"), ranks};
}

// A collective that only moves data, by the geometry of each tensor for a number of ranks.
template <auto kTransferOf>
void transfer(const Launch& launch) {
  using Moves = std::invoke_result_t<decltype(kTransferOf), const Call&, size_t, int64_t>;
  const Call& call = *launch.call;
  const int64_t ranks = comm(launch).size(call.text_attr("axis"));
  std::vector<Moves> moves;
  std::vector<MovedTensor> tensors;
  for (size_t i = 0; i < launch.results.size(); ++i) moves.push_back(kTransferOf(call, i, ranks));
  for (size_t i = 0; i < launch.results.size(); ++i) {
    const bool bounded =
        launch.results.size() < launch.operands.size() && is_floating(launch.operands[i].dtype);
    tensors.push_back({launch.operands[i], launch.results[i], &moves[i],
                       bounded ? &launch.operands.back() : nullptr});
  }
  comm(launch).transfer(site(launch), tensors);
}

template <auto kTransferOf>
int64_t transfer_workspace(const Call& call, int64_t ranks) {
  int64_t bytes = 0;
  for (size_t i = 0; i < call.results.size(); ++i) {
    bytes += packed_message_bytes(kTransferOf(call, i, ranks), ranks, call.type(i).dtype);
  }
  return bytes;
}

Decision supports_any(const Call&) {
  return Decision::yes();
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

DimLayout dim_layout(const Shape& full, const Shape& shard, const Call& call, int64_t ranks) {
  return {full, shard, call.int_attr("dim"), call.text_attr("axis"), ranks};
}

// A library gathers the shards one after the other; if that is not the full tensor, into here.
int64_t gather_dim_workspace(const Call& call, int64_t ranks) {
  const DimLayout layout = dim_layout(call.results.at(0).shape, call.type(0).shape, call, ranks);
  if (ranks == 1 || layout.is_contiguous()) return 0;
  return ranks * layout.shard_elements() * dtype_bytes(call.type(0).dtype);
}

// The same for what it scatters.
int64_t scatter_dim_workspace(const Call& call, int64_t ranks) {
  const DimLayout layout = dim_layout(call.type(0).shape, call.results.at(0).shape, call, ranks);
  if (ranks == 1 || layout.is_contiguous()) return 0;
  return ranks * layout.shard_elements() * dtype_bytes(call.type(0).dtype);
}

// The parts of the other ranks, after the packed shards of all ranks where these are strided.
int64_t ordered_dim_workspace(const Call& call, int64_t ranks) {
  const DimLayout layout = dim_layout(call.type(0).shape, call.results.at(0).shape, call, ranks);
  if (ranks == 1) return 0;
  const int64_t packed = layout.is_one_range() ? 0 : ranks;
  return (packed + ranks - 1) * layout.shard_elements() * dtype_bytes(call.type(0).dtype);
}

constexpr Kernel kPeerKernels[] = {
    {.op = "all_gather",
     .name = "peer_all_gather",
     .supports = supports_both<supports_flat, supports_floating>,
     .launch = all_gather,
     .shared_results = true},
    {.op = "all_gather",
     .name = "peer_all_gather_dim",
     .supports = supports_dim,
     .launch = all_gather_dim},
    {.op = "reduce_scatter",
     .name = "peer_reduce_scatter",
     .supports = supports_both<supports_flat, supports_floating>,
     .launch = reduce_scatter<true>},
    {.op = "reduce_scatter",
     .name = "peer_reduce_scatter_dim",
     .supports = supports_both<supports_dim, supports_floating>,
     .launch = reduce_scatter_dim<true>},
    {.op = "all_reduce",
     .name = "peer_all_reduce",
     .supports = supports_sum,
     .launch = all_reduce<true>},
    {.op = "all_to_all",
     .name = "peer_all_to_all",
     .supports = supports_any,
     .launch = transfer<all_to_all_of>},
    {.op = "shift", .name = "peer_shift", .supports = supports_any, .launch = transfer<shift_of>},
};

constexpr Kernel kGpuKernels[] = {
    {.op = "all_gather",
     .name = "nccl_all_gather",
     .supports = supports_both<supports_flat, supports_floating>,
     .launch = all_gather},
    {.op = "all_gather",
     .name = "nccl_all_gather_dim",
     .supports = supports_dim,
     .launch = all_gather_dim,
     .group_workspace = gather_dim_workspace},
    {.op = "reduce_scatter",
     .name = "nccl_reduce_scatter",
     .supports = supports_both<supports_flat, supports_library_sum>,
     .launch = reduce_scatter<false>,
     .any_order = true},
    {.op = "reduce_scatter",
     .name = "ordered_reduce_scatter",
     .supports = supports_both<supports_flat, supports_floating>,
     .launch = reduce_scatter<true>,
     .group_workspace = ordered_scatter_workspace},
    {.op = "reduce_scatter",
     .name = "nccl_reduce_scatter_dim",
     .supports = supports_both<supports_dim, supports_library_sum>,
     .launch = reduce_scatter_dim<false>,
     .group_workspace = scatter_dim_workspace,
     .any_order = true},
    {.op = "reduce_scatter",
     .name = "ordered_reduce_scatter_dim",
     .supports = supports_both<supports_dim, supports_floating>,
     .launch = reduce_scatter_dim<true>,
     .group_workspace = ordered_dim_workspace},
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
    {.op = "all_to_all",
     .name = "nccl_all_to_all",
     .supports = supports_any,
     .launch = transfer<all_to_all_of>,
     .group_workspace = transfer_workspace<all_to_all_of>},
    {.op = "shift", .name = "nccl_shift", .supports = supports_any, .launch = transfer<shift_of>},
};

}  // namespace

std::span<const Kernel> peer_kernels() {
  return kPeerKernels;
}

std::span<const Kernel> gpu_comm_kernels() {
  return kGpuKernels;
}

}  // namespace weft
