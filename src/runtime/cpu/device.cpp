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

namespace weft {

namespace {

constexpr int64_t kAlignment = 64;
// An arena is walked in strides of rows, which lie pages apart: large pages spare the look-ups.
constexpr int64_t kLargePage = 2 << 20;
constexpr int64_t kLargeBlock = 16 * kLargePage;

HostEvent& host_event(Event& event) {
  auto* host = dynamic_cast<HostEvent*>(&event);
  CHECK(host != nullptr, "the event belongs to another device");
  return *host;
}

}  // namespace

int64_t HostEvent::issue() {
  const std::lock_guard lock(mutex_);
  return ++issued_;
}

int64_t HostEvent::latest() {
  const std::lock_guard lock(mutex_);
  return issued_;
}

void HostEvent::complete(int64_t mark) {
  // Notified under the lock: a waiter may destroy the event as soon as it is let through.
  const std::lock_guard lock(mutex_);
  completed_ = std::max(completed_, mark);
  changed_.notify_all();
}

void HostEvent::await(int64_t mark) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= mark; });
}

HostStream::HostStream(int64_t threads) : team_(threads), thread_([this] { serve(); }) {}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  queued_.notify_one();
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
  push({.action = Action::Signal, .event = &host, .mark = host.issue()});
}

void HostStream::wait(Event& event) {
  HostEvent& host = host_event(event);
  push({.action = Action::Wait, .event = &host, .mark = host.latest()});
}

void HostStream::synchronize() {
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [&] { return queue_.empty() && !busy_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void HostStream::push(const Item& item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(item);
  }
  queued_.notify_one();
}

void HostStream::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    queued_.wait(lock, [&] { return !queue_.empty() || ending_; });
    if (queue_.empty()) return;
    const Item item = queue_.front();
    queue_.pop_front();
    busy_ = true;
    // Events pass even after an error, so that no other stream waits for ever.
    const bool is_event = item.action == Action::Signal || item.action == Action::Wait;
    if (!error_ || is_event) {
      lock.unlock();
      std::exception_ptr error;
      try {
        perform(item);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && !error_) error_ = error;
    }
    busy_ = false;
    if (queue_.empty()) drained_.notify_all();
  }
}

void HostStream::perform(const Item& item) {
  switch (item.action) {
    case Action::Launch:
      item.kernel->launch(*item.launch);
      break;
    case Action::Copy:
      std::memcpy(item.to, item.from, static_cast<size_t>(item.bytes));
      break;
    case Action::Zero:
      std::memset(item.to, 0, static_cast<size_t>(item.bytes));
      break;
    case Action::Signal:
      item.event->complete(item.mark);
      break;
    case Action::Wait:
      item.event->await(item.mark);
      break;
  }
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

void* HostDevice::allocate(int64_t bytes) {
  CHECK(bytes >= 0, "bytes ", bytes);
  const int64_t alignment = bytes >= kLargeBlock ? kLargePage : kAlignment;
  const int64_t whole = bytes == 0 ? alignment : (bytes - 1) / alignment * alignment + alignment;
  void* memory = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(whole));
  if (memory == nullptr) {
    throw DeviceError(cat("cpu: cannot allocate ", human_bytes(static_cast<double>(bytes)), " (",
                          bytes, " bytes); free memory or make the plan smaller"),
                      ExitCode::OutOfMemory);
  }
#if defined(__linux__)
  // Advice only: where it is not taken, pages are small.
  if (alignment == kLargePage) madvise(memory, static_cast<size_t>(whole), MADV_HUGEPAGE);
#endif
  return memory;
}

void HostDevice::release(void* memory) {
  std::free(memory);
}

std::unique_ptr<Stream> HostDevice::make_stream(std::string_view name) {
  return std::make_unique<HostStream>(name == "compute" ? threads_ : 1);
}

std::unique_ptr<Event> HostDevice::make_event() {
  return std::make_unique<HostEvent>();
}

ThreadTeam& team(const Launch& launch) {
  auto* stream = dynamic_cast<HostStream*>(launch.stream);
  CHECK(stream != nullptr, "the launch is not on a stream of the host device");
  return stream->team();
}

std::unique_ptr<Device> make_host_device(const DeviceOptions& options) {
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  return std::make_unique<HostDevice>(options.threads > 0 ? options.threads : cores);
}

}  // namespace weft
