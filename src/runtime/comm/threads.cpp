#include "runtime/comm/threads.h"

#include <cstdlib>
#include <cstring>
#include <new>

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

  void close_block(Block& block, Device& device) override {
    device.release(block.bases[static_cast<size_t>(rank())]);
  }
};

}  // namespace

struct ThreadsJob::State {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
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

std::unique_ptr<Communicator> ThreadsJob::join(RankInfo info, const CommOptions& options) {
  return std::make_unique<ThreadRank>(state_->control, std::move(info), options);
}

}  // namespace weft
