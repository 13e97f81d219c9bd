// Collectives on the GPU's streams. A bucket is one contiguous range with a full slot per rank, so
// gathers and NCCL's own sums work on it in place. An ordered sum exchanges the shards, moving no
// more bytes than a ring, into workspace of the plan, and then sums them as a tree.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/comm/control.h"
#include "runtime/comm/dim_layout.h"
#include "runtime/comm/flat_layout.h"
#include "runtime/comm/nccl/arithmetic.h"
#include "runtime/comm/nccl/connect.h"
#include "runtime/comm/nccl/copies.h"
#include "runtime/comm/nccl/groups.h"
#include "runtime/comm/nccl/progress.h"
#include "runtime/comm/transfer.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/device/stream.h"

namespace weft {
namespace {

using nccl::functions;
using nccl::Group;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return ncclFloat32;
    case DType::BF16:
      return ncclBfloat16;
    case DType::F16:
      return ncclFloat16;
    case DType::F64:
      return ncclFloat64;
    case DType::I32:
      return ncclInt32;
    case DType::I64:
      return ncclInt64;
  }
  CHECK(false, "a collective of an unknown dtype");
}

size_t unsigned_count(int64_t elements) {
  return static_cast<size_t>(elements);
}

// Elements of a rank's shard that ranks send each other: packed shards of several rows have their
// padding in between.
int64_t sent_elements(const DimLayout& layout, int64_t rank) {
  if (layout.length(rank) == 0) return 0;
  return layout.outer() == 1 ? layout.length(rank) * layout.inner() : layout.shard_elements();
}

class GpuRank : public Communicator {
 public:
  explicit GpuRank(std::unique_ptr<Communicator> hosts)
      : hosts_(std::move(hosts)), groups_(*hosts_) {}

  const RankInfo& info() const override { return hosts_->info(); }
  void make_groups(std::span<const CollectiveGroup> groups) override { groups_.make(groups); }
  void* allocate(int64_t bytes, Device& device) override { return device.allocate(bytes); }
  void* allocate_shared(std::string_view, int64_t, Device&) override {
    throw InternalError("GPUs share no memory");
  }
  void release(void* memory, Device& device) override { device.release(memory); }

  void all_gather(const CollectiveSite& site, const Tensor& shard,
                  std::span<const Tensor> members) override;
  void reduce_scatter(const CollectiveSite& site, std::span<const Tensor> members,
                      const Tensor& shard) override;
  void all_reduce(const CollectiveSite& site, std::span<const Tensor> tensors) override;
  void all_gather_dim(const CollectiveSite& site, const Tensor& shard, const Tensor& full,
                      int64_t dim) override;
  void reduce_scatter_dim(const CollectiveSite& site, const Tensor& full, const Tensor& shard,
                          int64_t dim) override;

  void transfer(const CollectiveSite& site, std::span<const MovedTensor> tensors) override;

  void barrier() override { hosts_->barrier(); }
  void exchange(std::span<const char> own, std::span<char> all) override {
    hosts_->exchange(own, all);
  }
  void start_step(int64_t step) override { hosts_->start_step(step); }
  void report_progress(int64_t channel, std::string_view where) override {
    progress_.set_label(channel, where);
    hosts_->report_progress(channel, where);
  }
  void watch(const DeviceLook& look) override;
  std::optional<std::string> poll_error() const override { return hosts_->poll_error(); }
  void abort(std::string_view reason) override { hosts_->abort(reason); }

 private:
  // A collective in progress: its group and stream, and the progress notes around it.
  class Work {
   public:
    Work(GpuRank& rank, const CollectiveSite& site)
        : progress_(rank.progress_), channel_(site.channel), group_(rank.groups_.at(site)) {
      CHECK(site.stream != nullptr, "a collective of a GPU without a stream");
      stream_ = static_cast<cuda::CudaStream*>(site.stream)->handle();
      progress_.begin(channel_, stream_);
    }
    void end() { progress_.end(channel_, stream_); }

    const Group& group() const { return group_; }
    cudaStream_t stream() const { return stream_; }

   private:
    nccl::Progress& progress_;
    int64_t channel_;
    const Group& group_;
    cudaStream_t stream_ = nullptr;
  };

  static void sum_shards(const Work& work, std::span<const Tensor> members, const Tensor& shard,
                         void* workspace);
  static void sum_ranges(const Work& work, const Tensor& full, const Tensor& shard,
                         const DimLayout& layout, void* workspace);
  static void exchange_parts(const Work& work, DType dtype, const DimLayout& layout,
                             std::span<void* const> ranges, void* received);
  enum class Direction { Send, Receive };
  // Everything of a tensor that this rank sends to another one in a transfer, or receives from it.
  struct Message {
    Direction direction = Direction::Send;
    int64_t rank = 0;
    Tensor tensor;
    std::vector<CopyBox> boxes;
    bool packed = false;
    void* data = nullptr;
  };
  static std::vector<Message> messages_of(const Group& group, const MovedTensor& moved,
                                          char* workspace);
  static void move_own(const Work& work, const MovedTensor& moved);
  static void copy_packed(const Message& message, cudaStream_t stream);
  static void post(const Work& work, const Message& message);
  static void sum_small(const Work& work, const Tensor& flat, void* workspace);
  static void sum_slices(const Work& work, const Tensor& flat, void* workspace);

  std::unique_ptr<Communicator> hosts_;
  nccl::Groups groups_;
  nccl::Progress progress_;
};

void GpuRank::all_gather(const CollectiveSite& site, const Tensor& shard,
                         std::span<const Tensor> members) {
  Work work(*this, site);
  const Group& group = work.group();
  check_members(members, shard, group.size);
  check_contiguous(members);
  const DType dtype = members[0].dtype;
  const int64_t shard_size = shard.elements();
  void* slot = shifted(members[0].data, dtype, group.rank * shard_size);
  const bool converts = shard.dtype != dtype || group.size == 1;
  if (converts) nccl::convert({shard.data, shard.dtype}, shard_size, {slot, dtype}, work.stream());
  if (group.size > 1) {
    NCCL_CHECK(functions().all_gather(converts ? slot : shard.data, members[0].data,
                                      unsigned_count(shard_size), nccl_type(dtype), group.comm,
                                      work.stream()));
  }
  work.end();
}

void GpuRank::reduce_scatter(const CollectiveSite& site, std::span<const Tensor> members,
                             const Tensor& shard) {
  Work work(*this, site);
  const Group& group = work.group();
  check_members(members, shard, group.size);
  check_contiguous(members);
  const int64_t shard_size = shard.elements();
  if (site.ordered || group.size == 1) {
    sum_shards(work, members, shard, site.workspace);
  } else {
    NCCL_CHECK(functions().reduce_scatter(members[0].data, shard.data, unsigned_count(shard_size),
                                          nccl_type(shard.dtype), ncclSum, group.comm,
                                          work.stream()));
  }
  const auto chunks =
      member_chunks(members, group.rank * shard_size, (group.rank + 1) * shard_size);
  nccl::zero(gaps_of(chunks, shard_size), {shard.data, shard.dtype}, work.stream());
  work.end();
}

// Every rank sends the others their shards and sums its own.
void GpuRank::sum_shards(const Work& work, std::span<const Tensor> members, const Tensor& shard,
                         void* workspace) {
  const Group& group = work.group();
  const DType dtype = members[0].dtype;
  const int64_t shard_size = shard.elements();
  const int64_t end = flat_end(members);
  // Nothing needs to be sent past the last member.
  const auto filled = [&](int64_t rank) {
    return std::clamp<int64_t>(end - rank * shard_size, 0, shard_size);
  };
  const int64_t own = filled(group.rank);
  int64_t arrived = 0;
  NCCL_CHECK(functions().group_start());
  for (int64_t rank = 0; rank < group.size; ++rank) {
    if (rank == group.rank) continue;
    if (filled(rank) > 0) {
      NCCL_CHECK(functions().send(shifted(members[0].data, dtype, rank * shard_size),
                                  unsigned_count(filled(rank)), nccl_type(dtype),
                                  static_cast<int>(rank), group.comm, work.stream()));
    }
    if (own == 0) continue;
    NCCL_CHECK(functions().receive(shifted(workspace, dtype, arrived), unsigned_count(own),
                                   nccl_type(dtype), static_cast<int>(rank), group.comm,
                                   work.stream()));
    arrived += own;
  }
  NCCL_CHECK(functions().group_end());
  nccl::tree_sum({.own = {shifted(members[0].data, dtype, group.rank * shard_size), dtype},
                  .others = workspace,
                  .rank = group.rank,
                  .ranks = group.size,
                  .elements = own},
                 {shard.data, shard.dtype}, work.stream());
}

void GpuRank::all_reduce(const CollectiveSite& site, std::span<const Tensor> tensors) {
  CHECK(!tensors.empty(), "nothing to reduce");
  Work work(*this, site);
  check_contiguous(tensors);
  // The gaps between tensors are summed too; nobody reads them.
  const Tensor flat{tensors[0].data, tensors[0].dtype, {flat_end(tensors)}};
  const Group& group = work.group();
  if (group.size == 1) {
    work.end();
    return;
  }
  if (!site.ordered) {
    NCCL_CHECK(functions().all_reduce(flat.data, flat.data, unsigned_count(flat.elements()),
                                      nccl_type(flat.dtype), ncclSum, group.comm, work.stream()));
  } else if (flat.elements() * dtype_bytes(flat.dtype) <= kSmallSumBytes) {
    sum_small(work, flat, site.workspace);
  } else {
    sum_slices(work, flat, site.workspace);
  }
  work.end();
}

// Few bytes: every rank gathers all parts and computes the same sum.
void GpuRank::sum_small(const Work& work, const Tensor& flat, void* workspace) {
  const Group& group = work.group();
  NCCL_CHECK(functions().all_gather(flat.data, workspace, unsigned_count(flat.elements()),
                                    nccl_type(flat.dtype), group.comm, work.stream()));
  // All ranks' parts are in the workspace, so the first one takes the place of `own`.
  nccl::tree_sum({.own = {workspace, flat.dtype},
                  .others = shifted(workspace, flat.dtype, flat.elements()),
                  .rank = 0,
                  .ranks = group.size,
                  .elements = flat.elements()},
                 {flat.data, flat.dtype}, work.stream());
}

// Each rank sums one slice in place and sends the result to all.
void GpuRank::sum_slices(const Work& work, const Tensor& flat, void* workspace) {
  const Group& group = work.group();
  const DType dtype = flat.dtype;
  const int64_t slice = slice_elements(flat.elements(), group.size);
  const auto length = [&](int64_t rank) {
    return std::clamp<int64_t>(flat.elements() - rank * slice, 0, slice);
  };
  const auto place = [&](int64_t rank) { return shifted(flat.data, dtype, rank * slice); };
  const auto send = [&](const void* from, int64_t elements, int64_t rank) {
    if (elements == 0) return;
    NCCL_CHECK(functions().send(from, unsigned_count(elements), nccl_type(dtype),
                                static_cast<int>(rank), group.comm, work.stream()));
  };
  const auto receive = [&](void* to, int64_t elements, int64_t rank) {
    if (elements == 0) return;
    NCCL_CHECK(functions().receive(to, unsigned_count(elements), nccl_type(dtype),
                                   static_cast<int>(rank), group.comm, work.stream()));
  };
  const auto with_others = [&](const auto& action) {
    NCCL_CHECK(functions().group_start());
    for (int64_t rank = 0; rank < group.size; ++rank) {
      if (rank != group.rank) action(rank);
    }
    NCCL_CHECK(functions().group_end());
  };
  const int64_t own = length(group.rank);
  int64_t arrived = 0;
  with_others([&](int64_t rank) {
    send(place(rank), length(rank), rank);
    receive(shifted(workspace, dtype, arrived), own, rank);
    arrived += own;
  });
  nccl::tree_sum({.own = {place(group.rank), dtype},
                  .others = workspace,
                  .rank = group.rank,
                  .ranks = group.size,
                  .elements = own},
                 {place(group.rank), dtype}, work.stream());
  with_others([&](int64_t rank) {
    send(place(group.rank), own, rank);
    receive(place(rank), length(rank), rank);
  });
}

void GpuRank::all_gather_dim(const CollectiveSite& site, const Tensor& shard, const Tensor& full,
                             int64_t dim) {
  Work work(*this, site);
  const Group& group = work.group();
  const DimLayout layout(full, shard, dim, site.axis, group.size);
  const DType dtype = full.dtype;
  CHECK(shard.dtype == dtype, "shards of ", dtype_name(shard.dtype), " gathered as ",
        dtype_name(dtype));
  const bool direct = layout.is_contiguous();
  void* gathered = direct ? full.data : site.workspace;
  if (group.size == 1) {
    gathered = shard.data;
  } else {
    NCCL_CHECK(functions().all_gather(shard.data, gathered, unsigned_count(shard.elements()),
                                      nccl_type(dtype), group.comm, work.stream()));
  }
  for (int64_t rank = 0; rank < group.size && gathered != full.data; ++rank) {
    void* from = shifted(gathered, dtype, rank * layout.shard_elements());
    nccl::copy_shard(full, from, layout, rank, nccl::CopyOrder::Unpack, work.stream());
  }
  work.end();
}

void GpuRank::reduce_scatter_dim(const CollectiveSite& site, const Tensor& full,
                                 const Tensor& shard, int64_t dim) {
  Work work(*this, site);
  const Group& group = work.group();
  const DimLayout layout(full, shard, dim, site.axis, group.size);
  if (site.ordered || group.size == 1) {
    sum_ranges(work, full, shard, layout, site.workspace);
  } else {
    const bool direct = layout.is_contiguous();
    // The padding of a packed shard is sent as it is; its sum is overwritten below.
    for (int64_t rank = 0; rank < group.size && !direct; ++rank) {
      void* to = shifted(site.workspace, full.dtype, rank * layout.shard_elements());
      nccl::copy_shard(full, to, layout, rank, nccl::CopyOrder::Pack, work.stream());
    }
    NCCL_CHECK(functions().reduce_scatter(direct ? full.data : site.workspace, shard.data,
                                          unsigned_count(shard.elements()), nccl_type(shard.dtype),
                                          ncclSum, group.comm, work.stream()));
  }
  nccl::zero_padding(shard, layout, group.rank, work.stream());
  work.end();
}

// Every rank sends the others their shards and sums its own. Shards that are not one range of
// memory are packed first, each with its padding, as the sum has the layout of the shard.
void GpuRank::sum_ranges(const Work& work, const Tensor& full, const Tensor& shard,
                         const DimLayout& layout, void* workspace) {
  const Group& group = work.group();
  const DType dtype = full.dtype;
  const bool packs = !layout.is_one_range() && group.size > 1;
  std::vector<void*> ranges;
  for (int64_t rank = 0; rank < group.size; ++rank) {
    ranges.push_back(
        packs ? shifted(workspace, dtype, rank * layout.shard_elements())
              : shifted(full.data, dtype, layout.in_full(0, layout.ranges(rank).front().begin)));
    if (!packs) continue;
    nccl::copy_shard(full, ranges.back(), layout, rank, nccl::CopyOrder::Pack, work.stream());
  }
  const int64_t packed = packs ? group.size * layout.shard_elements() : 0;
  void* received = shifted(workspace, dtype, packed);
  if (group.size > 1) exchange_parts(work, dtype, layout, ranges, received);
  nccl::tree_sum({.own = {ranges[static_cast<size_t>(group.rank)], dtype},
                  .others = received,
                  .rank = group.rank,
                  .ranks = group.size,
                  .elements = sent_elements(layout, group.rank)},
                 {shard.data, shard.dtype}, work.stream());
}

// Sends each rank its range; those of this rank arrive one after the other.
void GpuRank::exchange_parts(const Work& work, DType dtype, const DimLayout& layout,
                             std::span<void* const> ranges, void* received) {
  const Group& group = work.group();
  const int64_t own = sent_elements(layout, group.rank);
  int64_t arrived = 0;
  NCCL_CHECK(functions().group_start());
  for (int64_t rank = 0; rank < group.size; ++rank) {
    if (rank == group.rank) continue;
    const int64_t sent = sent_elements(layout, rank);
    if (sent > 0) {
      NCCL_CHECK(functions().send(ranges[static_cast<size_t>(rank)], unsigned_count(sent),
                                  nccl_type(dtype), static_cast<int>(rank), group.comm,
                                  work.stream()));
    }
    if (own == 0) continue;
    NCCL_CHECK(functions().receive(shifted(received, dtype, arrived), unsigned_count(own),
                                   nccl_type(dtype), static_cast<int>(rank), group.comm,
                                   work.stream()));
    arrived += own;
  }
  NCCL_CHECK(functions().group_end());
}

void GpuRank::transfer(const CollectiveSite& site, std::span<const MovedTensor> tensors) {
  Work work(*this, site);
  const Group& group = work.group();
  auto* workspace = static_cast<char*>(site.workspace);
  std::vector<Message> messages;
  for (const MovedTensor& moved : tensors) {
    move_own(work, moved);
    for (Message& message : messages_of(group, moved, workspace)) {
      messages.push_back(std::move(message));
    }
    workspace += packed_message_bytes(*moved.transfer, group.size, moved.from.dtype);
  }
  for (const Message& message : messages) {
    if (message.direction == Direction::Send) copy_packed(message, work.stream());
  }
  NCCL_CHECK(functions().group_start());
  for (const Message& message : messages) post(work, message);
  NCCL_CHECK(functions().group_end());
  for (const Message& message : messages) {
    if (message.direction == Direction::Receive) copy_packed(message, work.stream());
  }
  work.end();
}

// Sets padding to zero and copies what stays on this rank.
void GpuRank::move_own(const Work& work, const MovedTensor& moved) {
  const auto& [from, to, transfer, offsets] = moved;
  const int64_t own = work.group().rank;
  CHECK(to.dtype == from.dtype, dtype_name(from.dtype), " received as ", dtype_name(to.dtype));
  if (transfer->has_padding(own)) {
    CUDA_CHECK(cudaMemsetAsync(to.data, 0, unsigned_count(to.elements() * dtype_bytes(to.dtype)),
                               work.stream()));
  }
  for (const CopyBox& box : transfer->boxes(own, own)) {
    nccl::copy_box(box, to.data, from.data, from.dtype, work.stream());
  }
}

// Boxes for one rank are one message; several, or one with gaps, are packed for it in the
// workspace.
std::vector<GpuRank::Message> GpuRank::messages_of(const Group& group, const MovedTensor& moved,
                                                   char* workspace) {
  const auto& [from, to, transfer, offsets] = moved;
  int64_t used = 0;  // elements of the workspace
  std::vector<Message> messages;
  for (int64_t rank = 0; rank < group.size; ++rank) {
    if (rank == group.rank) continue;
    for (const Direction direction : {Direction::Send, Direction::Receive}) {
      const bool sends = direction == Direction::Send;
      Message message{
          .direction = direction,
          .rank = rank,
          .tensor = sends ? from : to,
          .boxes = sends ? transfer->boxes(group.rank, rank) : transfer->boxes(rank, group.rank)};
      if (message.boxes.empty()) continue;
      BoxSide CopyBox::*const side = sends ? &CopyBox::from : &CopyBox::to;
      message.packed = !is_one_message(message.boxes, side);
      if (message.packed) {
        message.data = shifted(workspace, from.dtype, used);
        used += total_elements(message.boxes);
      } else {
        message.data = shifted(message.tensor.data, from.dtype, (message.boxes[0].*side).begin);
      }
      messages.push_back(std::move(message));
    }
  }
  return messages;
}

// Fills a packed message from the tensor, or the tensor from it.
void GpuRank::copy_packed(const Message& message, cudaStream_t stream) {
  if (!message.packed) return;
  const Tensor& tensor = message.tensor;
  int64_t at = 0;
  for (CopyBox box : message.boxes) {
    const bool sends = message.direction == Direction::Send;
    (sends ? box.to : box.from) = box.packed_at(at);
    nccl::copy_box(box, sends ? message.data : tensor.data, sends ? tensor.data : message.data,
                   tensor.dtype, stream);
    at += box.elements();
  }
}

void GpuRank::post(const Work& work, const Message& message) {
  const size_t elements = unsigned_count(total_elements(message.boxes));
  const ncclDataType_t type = nccl_type(message.tensor.dtype);
  const int rank = static_cast<int>(message.rank);
  if (message.direction == Direction::Send) {
    NCCL_CHECK(
        functions().send(message.data, elements, type, rank, work.group().comm, work.stream()));
  } else {
    NCCL_CHECK(
        functions().receive(message.data, elements, type, rank, work.group().comm, work.stream()));
  }
}

// What the GPU is executing takes precedence over what was queued.
void GpuRank::watch(const DeviceLook& look) {
  DeviceLook seen = look;
  std::array<std::string_view, kChannels> places;
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    const nccl::Progress::Look progress = progress_.look(channel);
    places[static_cast<size_t>(channel)] = progress.label;
    seen.inside |= !progress.label.empty();
    seen.got_further |= progress.changed;
    if (progress.changed && channel != kHostChannel)
      hosts_->report_progress(channel, progress.label);
  }
  try {
    hosts_->watch(seen);
    groups_.check_errors(places);
  } catch (const std::exception& error) {
    hosts_->abort(error.what());  // no effect if another rank has already aborted
    groups_.abort();
    throw;
  }
}

// Makes ranks that share a GPU look like separate hosts; NCCL refuses to connect them otherwise.
void share_one_gpu(const RankInfo& info) {
  ::setenv("NCCL_HOSTID", cat("weft-", ::getppid(), "-", info.rank).c_str(), 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

}  // namespace

std::unique_ptr<Communicator> connect_gpus(std::unique_ptr<Communicator> hosts,
                                           const ConnectOptions& options) {
  if (options.share_device) share_one_gpu(hosts->info());
  functions();  // reports a missing library first
  return std::make_unique<GpuRank>(std::move(hosts));
}

}  // namespace weft
