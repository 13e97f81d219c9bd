#include "runtime/comm/shm.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "runtime/comm/peer_memory.h"

namespace weft {
namespace {

constexpr int64_t kPage = 4096;

DeviceError no_memory(std::string_view what, int64_t bytes) {
  return DeviceError(
      cat("shared memory: cannot ", what, " ", human_bytes(static_cast<double>(bytes)), ": ",
          reason_of(errno), "; free memory or make the plan smaller"),
      ExitCode::OutOfMemory);
}

// Each rank takes a descriptor, and descriptors run out long before memory does.
DeviceError no_descriptor(std::string_view what) {
  return DeviceError(cat("shared memory: cannot make ", what, ": ", reason_of(errno)),
                     ExitCode::OutOfMemory);
}

Descriptor anonymous_file(const std::string& name) {
  Descriptor file(::memfd_create(("weft: " + name).c_str(), MFD_CLOEXEC));
  if (file.get() < 0) throw no_descriptor(name);
  return file;
}

char* map_shared(int fd, int64_t offset, int64_t bytes) {
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                        static_cast<off_t>(offset));
  if (memory == MAP_FAILED) throw no_memory("map", bytes);
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // where the system supports it
  return static_cast<char*>(memory);
}

class ShmRank : public PeerMemory {
 public:
  ShmRank(ShmJob& job, RankInfo info, const CommOptions& options)
      : PeerMemory(job.control(), std::move(info), options), job_(job) {}

 private:
  std::string launcher_loss() override { return job_.launcher_loss(); }

  // Blocks follow each other in each rank's file, at the same offset for all ranks.
  void open_block(Block& block, Device&) override {
    reserve(block, rank());
    for (int64_t i = 0; i < ranks(); ++i) {
      block.bases[static_cast<size_t>(i)] = map_shared(job_.arena(i), end_, block.bytes);
    }
    note(block);
  }

  // The other ranks' files have a hole at that offset.
  void open_shared(Block& block) override {
    reserve(block, block.leader);
    block.bases.assign(block.bases.size(), map_shared(job_.arena(block.leader), end_, block.bytes));
    note(block);
  }

  void close_block(Block& block, Device&) override {
    char* own = block.bases[static_cast<size_t>(rank())];
    if (block.leader >= 0) {
      // Peers may still read, so the pages stay until the file is closed.
      ::munmap(own, static_cast<size_t>(block.bytes));
      return;
    }
    for (char* base : block.bases) ::munmap(base, static_cast<size_t>(block.bytes));
    const auto at = std::find_if(offsets_.begin(), offsets_.end(),
                                 [&](const auto& entry) { return entry.first == own; });
    CHECK(at != offsets_.end(), "a block without an offset");
    // Frees the pages; the file keeps its length.
    ::fallocate(job_.arena(rank()), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(at->second), static_cast<off_t>(block.bytes));
    offsets_.erase(at);
  }

  // Allocates the memory if this rank is the owner, and returns when every rank is done.
  void reserve(Block& block, int64_t owner) {
    block.bytes = (block.bytes + kPage - 1) / kPage * kPage;
    if (owner == rank()) {
      errno = ::posix_fallocate(job_.arena(rank()), static_cast<off_t>(end_),
                                static_cast<off_t>(block.bytes));
      if (errno != 0) throw no_memory("allocate", block.bytes);
    }
    std::vector<int64_t> sizes(static_cast<size_t>(ranks()));
    exchange({reinterpret_cast<const char*>(&block.bytes), sizeof block.bytes},
             {reinterpret_cast<char*>(sizes.data()), sizes.size() * sizeof sizes[0]});
    for (int64_t i = 0; i < ranks(); ++i) {
      CHECK(sizes[static_cast<size_t>(i)] == block.bytes, "rank ", i, " allocates ",
            sizes[static_cast<size_t>(i)], " bytes, rank ", rank(), " ", block.bytes);
    }
  }

  void note(const Block& block) {
    offsets_.push_back({block.bases[static_cast<size_t>(rank())], end_});
    end_ += block.bytes;
  }

  ShmJob& job_;
  int64_t end_ = 0;
  std::vector<std::pair<const char*, int64_t>> offsets_;
};

}  // namespace

ShmJob::ShmJob(int64_t ranks) {
  files_.control = anonymous_file("the control block");
  const int64_t bytes = Control::bytes(ranks);
  if (::ftruncate(files_.control.get(), static_cast<off_t>(bytes)) != 0) {
    throw no_memory("allocate", bytes);
  }
  map_control(ranks);
  control_ = Control::start(memory_, ranks);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    files_.arenas.push_back(anonymous_file(cat("the arena of rank ", rank)));
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw no_descriptor("a pipe");
  life_read_ = Descriptor(ends[0]);
  life_write_ = Descriptor(ends[1]);
}

ShmJob::ShmJob(ShmFiles files, Descriptor life)
    : files_(std::move(files)), first_rank_leads_(true), life_read_(std::move(life)) {
  map_control(std::ssize(files_.arenas));
  control_ = Control::view(memory_);
}

void ShmJob::map_control(int64_t ranks) {
  bytes_ = (Control::bytes(ranks) + kPage - 1) / kPage * kPage;
  memory_ = map_shared(files_.control.get(), 0, bytes_);
}

ShmJob::~ShmJob() {
  if (memory_ != nullptr) ::munmap(memory_, static_cast<size_t>(bytes_));
}

void ShmJob::become_rank() {
  life_write_.reset();
}

bool ShmJob::launcher_alive() const {
  pollfd life{.fd = life_read_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&life, 1, 0) <= 0 || (life.revents & POLLHUP) == 0;
}

std::string ShmJob::launcher_loss() const {
  if (launcher_alive()) return "";
  if (!first_rank_leads_) return "the launcher is gone";
  return cat("rank 0 (pid ", control_.at(0).process.load(), ") died ", control_.whereabouts(0));
}

std::unique_ptr<Communicator> ShmJob::connect(RankInfo info, const CommOptions& options) {
  return std::make_unique<ShmRank>(*this, std::move(info), options);
}

}  // namespace weft
