#include "runtime/comm/peer_memory.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/machine.h"
#include "base/text.h"
#include "runtime/comm/dim_layout.h"
#include "runtime/comm/flat_layout.h"
#include "runtime/comm/sum.h"
#include "runtime/comm/transfer.h"

namespace weft {
namespace {

enum class Kind : uint64_t {
  AllGather = 1,
  ReduceScatter,
  AllReduce,
  Transfer,
  Barrier,
  Exchange,
  Done
};

std::string_view kind_name(uint64_t kind) {
  constexpr std::string_view kNames[] = {"nothing",  "all_gather", "reduce_scatter", "all_reduce",
                                         "transfer", "barrier",    "exchange",       "finish"};
  return kNames[std::min<uint64_t>(kind, std::size(kNames) - 1)];
}

// Describes an arrival, so that ranks that disagree fail instead of mixing data.
uint64_t tag_of(Kind kind, DType dtype, int64_t elements) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(dtype) << 48 |
         static_cast<uint64_t>(elements);
}

std::string tag_text(uint64_t tag) {
  return cat(kind_name(tag >> 56), " of ", tag & ((uint64_t{1} << 48) - 1), " elements");
}

// The name of a set of axes: those of its bits. Empty if no numbering has all of them.
std::string axis_of_set(const Mesh& mesh, int64_t set) {
  const std::vector<MeshAxis> axes = mesh.all_axes();
  std::vector<std::string> names;
  for (size_t i = 0; i < axes.size(); ++i) {
    if ((set >> i & 1) != 0) names.push_back(axes[i].name);
  }
  const std::string joint = join(names, "+");
  const std::vector<MeshAxis> numbering = mesh.numbering_of(joint);
  const bool is_numbered = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::any_of(numbering.begin(), numbering.end(),
                       [&](const MeshAxis& axis) { return axis.name == name; });
  });
  return is_numbered ? joint : "";
}

int64_t total_elements(std::span<const Tensor> tensors) {
  int64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += tensor.elements();
  return sum;
}

// The range of a tensor's elements that one rank of a group sums for all: slice `i` of `n`.
std::pair<int64_t, int64_t> slice(int64_t elements, int64_t i, int64_t n) {
  constexpr int64_t kLine = 16;  // slices are aligned to cache lines
  const auto at = [&](int64_t k) {
    return std::min(elements, (elements * k / n + kLine - 1) / kLine * kLine);
  };
  return {at(i), i + 1 == n ? elements : at(i + 1)};
}

void copy_box(const CopyBox& box, void* to, const void* from, DType dtype) {
  const auto at = [](const BoxSide& side, int64_t slice, int64_t row) {
    return side.begin + slice * side.slice + row * side.row;
  };
  for (int64_t slice = 0; slice < box.slices; ++slice) {
    for (int64_t row = 0; row < box.rows; ++row) {
      copy_bytes(shifted(to, dtype, at(box.to, slice, row)),
                 shifted(from, dtype, at(box.from, slice, row)), box.run * dtype_bytes(dtype));
    }
  }
}

// How many rows a rank has for rank `target`: the last of its offsets for it, which `ends` has for
// one rank after the other.
int64_t filled_rows(const Tensor& offsets, const int32_t* ends, int64_t target, int64_t ranks) {
  const int64_t each = row_length(offsets.shape);
  CHECK(offsets.elements() == ranks * each, "offsets ", to_string(offsets.shape), " for ", ranks,
        " ranks");
  return ends[target * each + each - 1];
}

// Leaves out all but the first rows of [1,1,slots,...], which are one box.
void keep_rows(std::vector<CopyBox>& boxes, const Tensor& rows, int64_t filled) {
  CHECK(is_one_message(boxes, &CopyBox::from) && boxes[0].run == boxes[0].elements(), "rows ",
        to_string(rows.shape), " in ", boxes.size(), " boxes");
  const int64_t slots = rows.shape.at(2);
  CHECK(filled >= 0 && filled <= slots, filled, " of ", slots, " rows");
  boxes[0].run = boxes[0].run / slots * filled;
}

}  // namespace

// One collective of a group on a channel: counts arrivals and checks that all ranks make the same
// call.
class PeerMemory::Barrier {
 public:
  Barrier(PeerMemory& comm, const Group& group, int64_t channel)
      : comm_(comm), group_(group), place_{group.axis, channel} {
    CHECK(channel >= 0 && channel < kChannels, "channel ", channel);
    // Incremented before the check: see close_block of threads.
    comm_.control_.at(comm_.rank()).inside.fetch_add(1);
    try {
      comm_.control_.check_alive();
    } catch (...) {
      leave();
      throw;
    }
  }
  ~Barrier() { leave(); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  const Group& group() const { return group_; }
  size_t size() const { return group_.ranks.size(); }

  void arrive(uint64_t tag, std::span<const char> payload = {}) {
    comm_.control_.check_alive();
    tag_ = tag;
    number_ = comm_.control_.arrive(comm_.rank(), place_, tag, payload);
  }

  // Waits for member i of the group.
  void await(size_t i) {
    if (i == group_.own) return;
    const int64_t peer = group_.ranks[i];
    await_arrival(comm_.control_, comm_.rank(), peer, place_, number_, comm_.wait_);
    const uint64_t theirs = comm_.control_.cell(peer, place_).tags[number_ & 1];
    if (theirs == tag_) return;
    comm_.control_.abort(comm_.rank(),
                         cat("ranks disagree: rank ", comm_.rank(), " does ", tag_text(tag_),
                             ", rank ", peer, " does ", tag_text(theirs)),
                         ExitCode::Internal);
    comm_.control_.check_alive();
  }

  void await_all() {
    for (size_t i = 0; i < size(); ++i) await(i);
  }

  void sync(uint64_t tag) {
    arrive(tag);
    await_all();
  }

  // Member i's payload of the last awaited arrival.
  const char* payload(size_t i) const {
    return comm_.control_.cell(group_.ranks[i], place_).payloads[number_ & 1];
  }
  // The mail slot of the next arrival.
  static char* mail(const Control& control, int64_t rank, uint32_t number) {
    return control.at(rank).mail[number & 1];
  }
  uint32_t number() const { return number_; }
  uint32_t next_number() const {
    return comm_.control_.cell(comm_.rank(), place_).arrived.load(std::memory_order_relaxed) + 1;
  }

 private:
  void leave() { comm_.control_.at(comm_.rank()).inside.fetch_sub(1); }

  PeerMemory& comm_;
  const Group& group_;
  BarrierId place_;
  uint64_t tag_ = 0;
  uint32_t number_ = 0;
};

PeerMemory::PeerMemory(const Control& control, RankInfo info, const CommOptions& options)
    : control_(control), info_(std::move(info)), options_(options) {
  const Mesh& mesh = info_.mesh;
  CHECK(mesh.ranks() == control.ranks(), "a mesh of ", mesh.ranks(), " ranks in a job of ",
        control.ranks());
  CHECK(info_.rank >= 0 && info_.rank < mesh.ranks(), "rank ", info_.rank);
  const auto axes = static_cast<int64_t>(mesh.all_axes().size());
  CHECK(axes <= kMaxAxes, "axes ", axes);
  groups_.push_back({.axis = 0, .ranks = {info_.rank}, .own = 0});  // of no axes
  for (int64_t set = 1; set < int64_t{1} << axes; ++set) {
    Group group{.axis = set, .ranks = {}, .own = 0};
    if (const std::string axis = axis_of_set(mesh, set); !axis.empty()) {
      group.ranks = info_.group(axis);
      group.own = static_cast<size_t>(info_.coordinate(axis));
    }
    groups_.push_back(std::move(group));
  }
  Group world{.axis = kWorldAxis, .ranks = {}, .own = static_cast<size_t>(info_.rank)};
  for (int64_t i = 0; i < mesh.ranks(); ++i) world.ranks.push_back(i);
  groups_.push_back(std::move(world));
  wait_.timeout_seconds = options_.timeout_seconds;
  wait_.spins = mesh.ranks() <= usable_cores() ? 1000 : 0;
  wait_.launcher_loss = [this] { return launcher_loss(); };
  control_.at(info_.rank).process = ::getpid();
  control_.set_state(info_.rank, RankState::Running);
}

PeerMemory::~PeerMemory() {
  // Destroyed by an exception: peers need not wait for the timeout.
  if (std::uncaught_exceptions() > 0) {
    control_.abort(rank(), cat("rank ", rank(), " failed"), ExitCode::PeerLost);
  }
  control_.set_state(info_.rank, RankState::Done);
}

const PeerMemory::Group& PeerMemory::group(std::string_view axis) const {
  const std::vector<MeshAxis> axes = info_.mesh.all_axes();
  size_t set = 0, next = 0;
  for (const std::string_view one : joint_axes(axis)) {
    while (next < axes.size() && axes[next].name != one) ++next;
    CHECK(next < axes.size(), "the mesh has no axis \"", axis, "\", with axes in its order");
    set |= size_t{1} << next;
  }
  CHECK(!groups_[set].ranks.empty(), "the axes of \"", axis, "\" belong to two numberings");
  return groups_[set];
}

void* PeerMemory::allocate(int64_t bytes, Device& device) {
  Block block;
  block.bytes = std::max<int64_t>(bytes, 1);
  block.bases.resize(static_cast<size_t>(ranks()));
  open_block(block, device);
  return keep(std::move(block));
}

void* PeerMemory::allocate_shared(std::string_view axis, int64_t bytes, Device&) {
  Block block;
  block.bytes = std::max<int64_t>(bytes, 1);
  block.bases.resize(static_cast<size_t>(ranks()));
  block.leader = group(axis).ranks[0];
  open_shared(block);
  return keep(std::move(block));
}

void* PeerMemory::keep(Block block) {
  const std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(block));
  return blocks_.back().bases[static_cast<size_t>(rank())];
}

void PeerMemory::release(void* memory, Device& device) {
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& each) {
      return each.bases[static_cast<size_t>(rank())] == memory;
    });
    CHECK(found != blocks_.end(), "memory that was not allocated here");
    block = std::move(*found);
    blocks_.erase(found);
  }
  close_block(block, device);
}

const void* PeerMemory::peer(int64_t rank, const void* own) const {
  if (rank == info_.rank) return own;
  const char* at = static_cast<const char*>(own);
  const std::lock_guard lock(mutex_);
  for (const Block& block : blocks_) {
    const char* base = block.bases[static_cast<size_t>(info_.rank)];
    if (at >= base && at < base + block.bytes) {
      return block.bases[static_cast<size_t>(rank)] + (at - base);
    }
  }
  throw InternalError("a tensor of a collective lies outside the shared memory");
}

bool PeerMemory::is_shared(const void* data) const {
  const char* at = static_cast<const char*>(data);
  const std::lock_guard lock(mutex_);
  return std::any_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
    const char* base = block.bases[static_cast<size_t>(info_.rank)];
    return block.leader >= 0 && at >= base && at < base + block.bytes;
  });
}

std::vector<const void*> PeerMemory::peers(const Group& group, const void* own) const {
  std::vector<const void*> places;
  for (const int64_t rank : group.ranks) places.push_back(peer(rank, own));
  return places;
}

void PeerMemory::all_gather(const CollectiveSite& site, const Tensor& shard,
                            std::span<const Tensor> members) {
  Barrier barrier(*this, group(site.axis), site.channel);
  const Group& group = barrier.group();
  const int64_t shard_size = shard.elements();
  const auto size = static_cast<int64_t>(barrier.size());
  check_members(members, shard, size);
  const DType dtype = members[0].dtype;
  const auto own = static_cast<int64_t>(group.own);
  const auto place_own = [&] {
    for (const MemberChunk& chunk :
         member_chunks(members, own * shard_size, (own + 1) * shard_size)) {
      convert({shifted(shard.data, shard.dtype, chunk.position), shard.dtype}, chunk.elements,
              {shifted(members[chunk.member].data, dtype, chunk.offset), dtype});
    }
  };
  if (is_shared(members[0].data)) {
    barrier.sync(
        tag_of(Kind::AllGather, dtype, shard_size));  // nobody still reads the old contents
    place_own();
    barrier.sync(tag_of(Kind::Done, dtype, shard_size));
    return delay((size - 1) * shard_size * dtype_bytes(dtype));
  }
  // Without conversion peers read the shard directly, while this rank still copies its own part.
  const bool direct = shard.dtype == dtype;
  if (!direct) place_own();
  barrier.arrive(tag_of(Kind::AllGather, dtype, shard_size));
  if (direct) place_own();
  for (int64_t k = 1; k < size; ++k) {
    const int64_t i = (own + k) % size;  // each rank starts elsewhere, to spread the reads
    const int64_t from = group.ranks[static_cast<size_t>(i)];
    barrier.await(static_cast<size_t>(i));
    for (const MemberChunk& chunk : member_chunks(members, i * shard_size, (i + 1) * shard_size)) {
      void* to = shifted(members[chunk.member].data, dtype, chunk.offset);
      const void* source =
          direct ? peer(from, shifted(shard.data, dtype, chunk.position)) : peer(from, to);
      copy_bytes(to, source, chunk.elements * dtype_bytes(dtype));
    }
  }
  barrier.sync(tag_of(Kind::Done, dtype, shard_size));
  delay((size - 1) * shard_size * dtype_bytes(dtype));
}

void PeerMemory::reduce_scatter(const CollectiveSite& site, std::span<const Tensor> members,
                                const Tensor& shard) {
  Barrier barrier(*this, group(site.axis), site.channel);
  const Group& group = barrier.group();
  const int64_t shard_size = shard.elements();
  const auto size = static_cast<int64_t>(barrier.size());
  check_members(members, shard, size);
  const DType dtype = members[0].dtype;
  const auto own = static_cast<int64_t>(group.own);
  barrier.sync(tag_of(Kind::ReduceScatter, dtype, shard_size));
  const std::vector<MemberChunk> chunks =
      member_chunks(members, own * shard_size, (own + 1) * shard_size);
  for (const Gap& gap : gaps_of(chunks, shard_size)) {
    std::memset(shifted(shard.data, shard.dtype, gap.begin), 0,
                static_cast<size_t>((gap.end - gap.begin) * dtype_bytes(shard.dtype)));
  }
  for (const MemberChunk& chunk : chunks) {
    const std::vector<const void*> sources =
        peers(group, shifted(members[chunk.member].data, dtype, chunk.offset));
    tree_sum(sources, dtype, chunk.elements,
             {shifted(shard.data, shard.dtype, chunk.position), shard.dtype});
  }
  barrier.sync(tag_of(Kind::Done, dtype, shard_size));
  delay((size - 1) * shard_size * dtype_bytes(dtype));
}

void PeerMemory::all_gather_dim(const CollectiveSite& site, const Tensor& shard, const Tensor& full,
                                int64_t dim) {
  Barrier barrier(*this, group(site.axis), site.channel);
  const Group& group = barrier.group();
  const auto size = static_cast<int64_t>(barrier.size());
  const DimLayout layout(full, shard, dim, site.axis, size);
  const DType dtype = full.dtype;
  CHECK(shard.dtype == dtype, "shards of ", dtype_name(shard.dtype), " gathered as ",
        dtype_name(dtype));
  const auto copy_shard = [&](int64_t i) {
    const void* from = peer(group.ranks[static_cast<size_t>(i)], shard.data);
    layout.for_parts(i, [&](int64_t in_full, int64_t in_shard, int64_t elements) {
      copy_bytes(shifted(full.data, dtype, in_full), shifted(from, dtype, in_shard),
                 elements * dtype_bytes(dtype));
    });
  };
  const auto own = static_cast<int64_t>(group.own);
  barrier.arrive(tag_of(Kind::AllGather, dtype, shard.elements()));
  copy_shard(own);
  for (int64_t k = 1; k < size; ++k) {
    const int64_t i = (own + k) % size;  // each rank starts elsewhere, to spread the reads
    barrier.await(static_cast<size_t>(i));
    copy_shard(i);
  }
  barrier.sync(tag_of(Kind::Done, dtype, shard.elements()));
  delay((size - 1) * shard.elements() * dtype_bytes(dtype));
}

void PeerMemory::reduce_scatter_dim(const CollectiveSite& site, const Tensor& full,
                                    const Tensor& shard, int64_t dim) {
  Barrier barrier(*this, group(site.axis), site.channel);
  const auto size = static_cast<int64_t>(barrier.size());
  const DimLayout layout(full, shard, dim, site.axis, size);
  const auto own = static_cast<int64_t>(barrier.group().own);
  barrier.sync(tag_of(Kind::ReduceScatter, full.dtype, shard.elements()));
  const std::vector<const void*> bases = peers(barrier.group(), full.data);
  std::vector<const void*> sources(bases.size());
  layout.for_parts(own, [&](int64_t in_full, int64_t in_shard, int64_t elements) {
    for (size_t i = 0; i < bases.size(); ++i) sources[i] = shifted(bases[i], full.dtype, in_full);
    tree_sum(sources, full.dtype, elements,
             {shifted(shard.data, shard.dtype, in_shard), shard.dtype});
  });
  const int64_t filled = layout.length(own);
  const int64_t padding = (layout.part() - filled) * layout.inner();
  for (int64_t row = 0; row < layout.outer(); ++row) {
    std::memset(shifted(shard.data, shard.dtype, layout.in_shard(row, filled)), 0,
                static_cast<size_t>(padding * dtype_bytes(shard.dtype)));
  }
  barrier.sync(tag_of(Kind::Done, full.dtype, shard.elements()));
  delay((size - 1) * shard.elements() * dtype_bytes(full.dtype));
}

void PeerMemory::transfer(const CollectiveSite& site, std::span<const MovedTensor> tensors) {
  Barrier barrier(*this, group(site.axis), site.channel);
  const Group& group = barrier.group();
  const auto size = static_cast<int64_t>(barrier.size());
  const auto own = static_cast<int64_t>(group.own);
  int64_t elements = 0;
  for (const MovedTensor& moved : tensors) elements += moved.from.elements();
  const DType tag_dtype = tensors.front().from.dtype;
  barrier.arrive(tag_of(Kind::Transfer, tag_dtype, elements));
  for (const MovedTensor& moved : tensors) {
    const Tensor& to = moved.to;
    CHECK(to.dtype == moved.from.dtype, dtype_name(moved.from.dtype), " received as ",
          dtype_name(to.dtype));
    if (!moved.transfer->has_padding(own)) continue;
    std::memset(to.data, 0, static_cast<size_t>(to.elements() * dtype_bytes(to.dtype)));
  }
  int64_t received = 0;
  for (int64_t k = 0; k < size; ++k) {
    const int64_t i = (own + k) % size;  // each rank starts elsewhere, to spread the reads
    const int64_t sender = group.ranks[static_cast<size_t>(i)];
    for (const auto& [from, to, transfer, offsets] : tensors) {
      std::vector<CopyBox> boxes = transfer->boxes(i, own);
      if (boxes.empty()) continue;
      barrier.await(static_cast<size_t>(i));
      if (offsets != nullptr) {
        const auto* ends = static_cast<const int32_t*>(peer(sender, offsets->data));
        keep_rows(boxes, from, filled_rows(*offsets, ends, own, size));
      }
      const void* source = peer(sender, from.data);
      for (const CopyBox& box : boxes) copy_box(box, to.data, source, from.dtype);
      if (i != own) received += total_elements(boxes) * dtype_bytes(from.dtype);
    }
  }
  barrier.sync(tag_of(Kind::Done, tag_dtype, elements));
  delay(received);
}

void PeerMemory::all_reduce(const CollectiveSite& site, std::span<const Tensor> tensors) {
  CHECK(!tensors.empty(), "nothing to reduce");
  Barrier barrier(*this, group(site.axis), site.channel);
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.elements() * dtype_bytes(tensor.dtype);
  if (bytes <= kInlineBytes) {
    all_reduce_inline(barrier, tensors);
  } else {
    all_reduce_shared(barrier, tensors);
  }
  const auto size = static_cast<int64_t>(barrier.size());
  delay(2 * (size - 1) * bytes / size);
}

// Few bytes travel with the arrival itself: one barrier, and the tensors may lie anywhere.
void PeerMemory::all_reduce_inline(Barrier& barrier, std::span<const Tensor> tensors) {
  char packed[kInlineBytes];
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t length = tensor.elements() * dtype_bytes(tensor.dtype);
    std::memcpy(packed + bytes, tensor.data, static_cast<size_t>(length));
    bytes += length;
  }
  barrier.arrive(tag_of(Kind::AllReduce, tensors[0].dtype, total_elements(tensors)),
                 {packed, static_cast<size_t>(bytes)});
  barrier.await_all();
  int64_t at = 0;
  for (const Tensor& tensor : tensors) {
    std::vector<const void*> sources;
    const int64_t length = tensor.elements() * dtype_bytes(tensor.dtype);
    // Packing may leave an element misaligned.
    std::vector<std::vector<int64_t>> aligned;
    for (size_t i = 0; i < barrier.size(); ++i) {
      aligned.emplace_back((length + 7) / 8);
      std::memcpy(aligned.back().data(), barrier.payload(i) + at, static_cast<size_t>(length));
      sources.push_back(aligned.back().data());
    }
    tree_sum(sources, tensor.dtype, tensor.elements(), {tensor.data, tensor.dtype});
    at += length;
  }
}

// Each rank sums one slice of every tensor in its own memory, then copies the other slices.
void PeerMemory::all_reduce_shared(Barrier& barrier, std::span<const Tensor> tensors) {
  const Group& group = barrier.group();
  const auto size = static_cast<int64_t>(barrier.size());
  const auto own = static_cast<int64_t>(group.own);
  const uint64_t tag = tag_of(Kind::AllReduce, tensors[0].dtype, total_elements(tensors));
  barrier.sync(tag);
  for (const Tensor& tensor : tensors) {
    const auto [begin, end] = slice(tensor.elements(), own, size);
    if (begin == end) continue;
    void* to = shifted(tensor.data, tensor.dtype, begin);
    tree_sum(peers(group, to), tensor.dtype, end - begin, {to, tensor.dtype});
  }
  barrier.arrive(tag);
  for (int64_t k = 1; k < size; ++k) {
    const int64_t i = (own + k) % size;
    barrier.await(static_cast<size_t>(i));
    for (const Tensor& tensor : tensors) {
      const auto [begin, end] = slice(tensor.elements(), i, size);
      if (begin == end) continue;
      void* to = shifted(tensor.data, tensor.dtype, begin);
      copy_bytes(to, peer(group.ranks[static_cast<size_t>(i)], to),
                 (end - begin) * dtype_bytes(tensor.dtype));
    }
  }
  barrier.sync(tag_of(Kind::Done, tensors[0].dtype, total_elements(tensors)));
}

void PeerMemory::barrier() {
  Barrier barrier(*this, groups_.back(), 0);
  barrier.sync(tag_of(Kind::Barrier, DType::F32, 0));
}

void PeerMemory::exchange(std::span<const char> own, std::span<char> all) {
  CHECK(all.size() == own.size() * static_cast<size_t>(ranks()), "exchange of ", own.size(),
        " bytes into ", all.size());
  Barrier barrier(*this, groups_.back(), 0);
  const auto tag = tag_of(Kind::Exchange, DType::F32, static_cast<int64_t>(own.size()));
  size_t at = 0;
  do {
    const size_t length = std::min(own.size() - at, static_cast<size_t>(kMailBytes));
    std::memcpy(Barrier::mail(control_, rank(), barrier.next_number()), own.data() + at, length);
    barrier.sync(tag);
    for (int64_t i = 0; i < ranks(); ++i) {
      std::memcpy(all.data() + static_cast<size_t>(i) * own.size() + at,
                  Barrier::mail(control_, i, barrier.number()), length);
    }
    at += length;
  } while (at < own.size());
}

void PeerMemory::start_step(int64_t step) {
  control_.at(rank()).step = step;
  control_.at(rank()).sign_of_life = monotonic_ns();
}

void PeerMemory::report_progress(int64_t channel, std::string_view where) {
  CHECK(channel >= 0 && channel < kChannels, "channel ", channel);
  control_.report_progress(rank(), channel, where);
}

void PeerMemory::watch(const DeviceLook& look) {
  device_wait_.look(control_, rank(), look, wait_);
}

std::optional<std::string> PeerMemory::poll_error() const {
  if (!control_.aborted()) return std::nullopt;
  return control_.abort_reason();
}

void PeerMemory::abort(std::string_view reason) {
  control_.abort(rank(), cat("rank ", rank(), ": ", reason), ExitCode::PeerLost);
}

void PeerMemory::delay(int64_t bytes) {
  const LinkDelay& link = options_.delay;
  if (link.bytes_per_second <= 0 && link.latency_seconds <= 0) return;
  const double seconds =
      link.bytes_per_second > 0 ? static_cast<double>(bytes) / link.bytes_per_second : 0;
  int64_t end = 0;
  {
    // Transfers of two channels share the one link.
    const std::lock_guard lock(mutex_);
    link_free_ = std::max(link_free_, monotonic_ns()) + static_cast<int64_t>(seconds * 1e9);
    end = link_free_ + static_cast<int64_t>(link.latency_seconds * 1e9);
  }
  constexpr int64_t kNap = 20'000'000;
  for (int64_t left; (left = end - monotonic_ns()) > 0;) {
    control_.check_alive();
    control_.at(rank()).sign_of_life = monotonic_ns();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, kNap)));
  }
}

}  // namespace weft
