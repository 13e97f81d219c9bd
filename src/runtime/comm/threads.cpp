#include "runtime/comm/threads.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "runtime/comm/peer_memory.h"
#include "runtime/device.h"

namespace weft {
namespace {

class ThreadRank : public PeerMemory {
 public:
  using PeerMemory::PeerMemory;

 private:
  void open_block(Block& block, Device& device) override {
    auto* base = static_cast<char*>(device.allocate(block.bytes));
    try {
      exchange({reinterpret_cast<const char*>(&base), sizeof base},
               {reinterpret_cast<char*>(block.bases.data()), block.bases.size() * sizeof base});
    } catch (...) {
      device.release(base);
      throw;
    }
  }

  // Every rank holds a reference, as a peer may still read after the leader has exited.
  void open_shared(Block& block) override {
    std::shared_ptr<void> own;
    if (rank() == block.leader) {
      const auto bytes = static_cast<size_t>((block.bytes + 63) / 64 * 64);
      own.reset(std::aligned_alloc(64, bytes), std::free);
      if (!own) throw std::bad_alloc();
    }
    const auto holder = reinterpret_cast<uintptr_t>(&own);
    std::vector<uintptr_t> holders(static_cast<size_t>(ranks()));
    exchange({reinterpret_cast<const char*>(&holder), sizeof holder},
             {reinterpret_cast<char*>(holders.data()), holders.size() * sizeof holder});
    const uintptr_t leader = holders[static_cast<size_t>(block.leader)];
    block.shared = *reinterpret_cast<const std::shared_ptr<void>*>(leader);
    block.bases.assign(block.bases.size(), static_cast<char*>(block.shared.get()));
    barrier();  // until here the leader's pointer is read
  }

  void close_block(Block& block, Device& device) override {
    if (block.leader >= 0) return block.shared.reset();
    // After an abort a peer may still read; it exits soon, because every one of its waits ends.
    for (int64_t i = 0; i < ranks() && control().aborted(); ++i) {
      while (control().at(i).inside.load() != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    device.release(block.bases[static_cast<size_t>(rank())]);
  }
};

}  // namespace

struct ThreadsJob::State {
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  std::unique_ptr<void, Free> memory;
  Control control;
};

ThreadsJob::ThreadsJob(int64_t ranks) : state_(std::make_unique<State>()) {
  const auto bytes = static_cast<size_t>((Control::bytes(ranks) + 63) / 64 * 64);
  state_->memory.reset(std::aligned_alloc(64, bytes));
  if (!state_->memory) throw std::bad_alloc();
  std::memset(state_->memory.get(), 0, bytes);
  state_->control = Control::start(state_->memory.get(), ranks);
}

ThreadsJob::~ThreadsJob() = default;

std::unique_ptr<Communicator> ThreadsJob::connect(RankInfo info, const CommOptions& options) {
  return std::make_unique<ThreadRank>(state_->control, std::move(info), options);
}

}  // namespace weft
