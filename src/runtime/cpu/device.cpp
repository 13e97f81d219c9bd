#include "runtime/cpu/device.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/machine.h"
#include "plan/plan.h"
#include "runtime/cpu/peak.h"
#include "runtime/cpu/spin.h"
#include "runtime/run_launch.h"

namespace weft {

namespace {

constexpr int64_t kAlignment = 64;
// Kernels walk an arena in row strides that are pages apart: large pages save TLB misses.
constexpr int64_t kLargePage = 2 << 20;
constexpr int64_t kLargeBlock = 16 * kLargePage;
constexpr int64_t kCopyTile = 1 << 20;

HostEvent& host_event(Event& event) {
  auto* host = dynamic_cast<HostEvent*>(&event);
  CHECK(host != nullptr, "the event belongs to another device");
  return *host;
}

}  // namespace

void HostEvent::complete(uint32_t ticket) {
  // Signals of one event complete in the order they were issued in: only one stream signals it.
  completed_.store(ticket);
  completed_.notify_all();
}

void HostEvent::await(uint32_t ticket) const {
  uint32_t completed = completed_.load();
  while (static_cast<int32_t>(completed - ticket) < 0) {
    completed = await_change(completed_, completed, kShortSpins);
  }
}

HostStream::HostStream(int64_t threads)
    : team_(threads), ring_(std::make_unique<std::array<Item, kCapacity>>()) {
  thread_ = std::thread([this] { serve(); });
}

HostStream::~HostStream() {
  push({.action = Action::End});
  thread_.join();
}

void HostStream::launch(const Kernel& kernel, const Launch& launch) {
  push({.action = Action::Launch, .kernel = &kernel, .launch = &launch});
}

void HostStream::copy_in(void* device, const void* host, int64_t bytes) {
  push({.action = Action::Copy, .to = device, .from = host, .bytes = bytes});
}

void HostStream::copy_out(void* host, const void* device, int64_t bytes) {
  push({.action = Action::Copy, .to = host, .from = device, .bytes = bytes});
}

void HostStream::zero(void* device, int64_t bytes) {
  push({.action = Action::Zero, .to = device, .bytes = bytes});
}

void HostStream::signal(Event& event) {
  HostEvent& host = host_event(event);
  push({.action = Action::Signal, .event = &host, .ticket = host.issue()});
}

void HostStream::wait(Event& event) {
  HostEvent& host = host_event(event);
  push({.action = Action::Wait, .event = &host, .ticket = host.latest()});
}

void HostStream::synchronize() {
  const uint32_t pushed = pushed_.load();
  uint32_t progress = progress_.load();
  while (progress != pushed) progress = await_change(progress_, progress, kShortSpins);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void HostStream::push(const Item& item) {
  const uint32_t pushed = pushed_.load();
  uint32_t progress = progress_.load();
  while (pushed - progress >= kCapacity) {
    progress = await_change(progress_, progress, kShortSpins);
  }
  (*ring_)[pushed % kCapacity] = item;
  pushed_.store(pushed + 1);
  // Only the thread itself clears the flag: clearing it here could clear the flag of its next
  // sleep.
  if (asleep_.load()) pushed_.notify_one();
}

void HostStream::serve() {
  for (uint32_t taken = 0;;) {
    if (pushed_.load() == taken) {
      for (int spin = 0; spin < kShortSpins && pushed_.load() == taken; ++spin) relax();
      // Set before the last check, so that a concurrent push either is seen or sees the flag.
      asleep_.store(true);
      pushed_.wait(taken);
      asleep_.store(false);
    }
    const Item& item = (*ring_)[taken % kCapacity];
    if (item.action == Action::End) return;
    run(item);
    ++taken;
    if (taken % (kCapacity / 2) == 0 || taken == pushed_.load()) {
      progress_.store(taken);
      progress_.notify_all();
    }
  }
}

void HostStream::run(const Item& item) {
  // Events are processed even after an error, so that no other stream waits forever.
  const bool is_event = item.action == Action::Signal || item.action == Action::Wait;
  if (error_ && !is_event) return;
  try {
    perform(item);
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
}

void HostStream::perform(const Item& item) {
  switch (item.action) {
    case Action::Launch:
      run_launch(*item.kernel, *item.launch);
      break;
    case Action::Copy:
      copy(item);
      break;
    case Action::Zero:
      std::memset(item.to, 0, static_cast<size_t>(item.bytes));
      break;
    case Action::Signal:
      item.event->complete(item.ticket);
      break;
    case Action::Wait:
      item.event->await(item.ticket);
      break;
    case Action::End:
      break;
  }
}

// One core alone does not use all of the memory's bandwidth.
void HostStream::copy(const Item& item) {
  team_.run((item.bytes + kCopyTile - 1) / kCopyTile, [&](int64_t tile) {
    const int64_t at = tile * kCopyTile;
    std::memcpy(static_cast<char*>(item.to) + at, static_cast<const char*>(item.from) + at,
                static_cast<size_t>(std::min(kCopyTile, item.bytes - at)));
  });
}

HostDevice::HostDevice(int64_t threads) : threads_(threads) {
  CHECK(threads >= 1, "threads ", threads);
}

std::string HostDevice::description() const {
  return cat("cpu, ", threads_, threads_ == 1 ? " thread" : " threads");
}

int64_t HostDevice::memory_bytes() const {
  return host_memory_bytes();
}

int64_t HostDevice::cache_bytes() const {
  return host_cache_bytes();
}

void* HostDevice::allocate(int64_t bytes) {
  CHECK(bytes >= 0, "bytes ", bytes);
  const int64_t alignment = bytes >= kLargeBlock ? kLargePage : kAlignment;
  const int64_t full = bytes == 0 ? alignment : (bytes - 1) / alignment * alignment + alignment;
  void* memory = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(full));
  if (memory == nullptr) {
    throw DeviceError(cat("cpu: cannot allocate ", human_bytes(static_cast<double>(bytes)), " (",
                          bytes, " bytes); free memory or make the plan smaller"),
                      ExitCode::OutOfMemory);
  }
#if defined(__linux__)
  // Only a hint: if it is ignored, pages are small.
  if (alignment == kLargePage) madvise(memory, static_cast<size_t>(full), MADV_HUGEPAGE);
#endif
  return memory;
}

void HostDevice::release(void* memory) {
  std::free(memory);
}

// In large pages too, so that a copy is as fast as one inside the arena.
HostMemory HostDevice::allocate_host(int64_t bytes) {
  auto* memory = static_cast<std::byte*>(allocate(bytes));
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return {memory, [](std::byte* block) { std::free(block); }};
}

std::unique_ptr<Stream> HostDevice::make_stream(std::string_view name) {
  return std::make_unique<HostStream>(name == stream_name(StreamId::Compute) ? threads_ : 1);
}

std::unique_ptr<Event> HostDevice::make_event() {
  return std::make_unique<HostEvent>();
}

std::optional<double> HostDevice::peak_flops(DType dtype) const {
  return static_cast<double>(std::min(threads_, usable_cores())) * core_peak_flops(dtype);
}

ThreadTeam& team(const Launch& launch) {
  auto* stream = dynamic_cast<HostStream*>(launch.stream);
  CHECK(stream != nullptr, "the launch is not on a stream of the host device");
  return stream->team();
}

std::unique_ptr<Device> make_host_device(const DeviceOptions& options) {
  return std::make_unique<HostDevice>(options.threads > 0 ? options.threads : usable_cores());
}

}  // namespace weft
