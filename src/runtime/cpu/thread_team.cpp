#include "runtime/cpu/thread_team.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "base/error.h"
#include "runtime/cpu/spin.h"

namespace weft {

namespace {

constexpr uint32_t kClosed = 1u << 15;
constexpr uint32_t kInside = kClosed - 1;
constexpr uint32_t kGeneration = 1u << 16;

}  // namespace

void ThreadTeam::ScratchDeleter::operator()(float* memory) const {
  std::free(memory);
}

ThreadTeam::ThreadTeam(int64_t threads) : state_(kClosed) {
  CHECK(threads >= 1 && threads < kInside, "threads ", threads);
  for (int64_t i = 0; i < threads; ++i) {
    const size_t bytes = kScratchFloats * sizeof(float);
    scratch_.emplace_back(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (!scratch_.back()) throw std::bad_alloc();
  }
  for (int64_t i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { work(scratch_[static_cast<size_t>(i)].get()); });
  }
}

ThreadTeam::~ThreadTeam() {
  ending_ = true;
  state_.fetch_add(kGeneration);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::run_task(const Task& task) {
  CHECK(!running_.exchange(true), "a thread team runs one task at a time");
  task_ = task;
  next_tile_ = 0;
  const bool shared = task.tiles > 1 && !workers_.empty();
  if (shared) {
    // No thread is inside and the task is closed, so a plain store cannot lose an entry.
    state_.store((state_.load() & ~(kClosed | kInside)) + kGeneration);
    state_.notify_all();
  }
  take_tiles(scratch_[0].get());
  if (shared) {
    uint32_t state = state_.fetch_or(kClosed) | kClosed;
    while ((state & kInside) != 0) state = await_change(state_, state, kLongSpins);
  }
  const std::exception_ptr error = std::exchange(error_, nullptr);
  running_ = false;
  if (error) std::rethrow_exception(error);
}

void ThreadTeam::take_tiles(float* scratch) {
  try {
    while (true) {
      const int64_t tile = next_tile_.fetch_add(1, std::memory_order_relaxed);
      if (tile >= task_.tiles) return;
      task_.call(task_.body, tile, scratch);
    }
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
    next_tile_ = task_.tiles;
  }
}

void ThreadTeam::work(float* scratch) {
  uint32_t seen = state_.load();
  while (!ending_) {
    if ((seen & kClosed) != 0) {
      seen = await_change(state_, seen, kLongSpins);
      continue;
    }
    if (!state_.compare_exchange_weak(seen, seen + 1)) continue;
    const uint32_t generation = seen / kGeneration;
    take_tiles(scratch);
    seen = state_.fetch_sub(1) - 1;
    if ((seen & kClosed) != 0 && (seen & kInside) == 0) state_.notify_all();
    // An open task without tiles is about to be closed: wait for that rather than enter again.
    while (!ending_ && (seen & kClosed) == 0 && seen / kGeneration == generation) {
      seen = await_change(state_, seen, kLongSpins);
    }
  }
}

}  // namespace weft
