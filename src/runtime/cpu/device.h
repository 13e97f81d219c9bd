// The host as a device: memory is ordinary memory, a stream is a thread with a ring of work items.
// The stream named "compute" runs its kernels on a thread team. Every other stream runs on its own
// thread only, so that copies or communication overlap with the computation. Queueing and running
// allocate nothing, lock nothing and make system calls only to sleep and to wake a sleeper.
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>

#include "runtime/cpu/thread_team.h"
#include "runtime/device.h"

namespace weft {

// Counts signals: a wait covers the signals queued before it. Numbers wrap around.
class HostEvent : public Event {
 public:
  // The number of the next signal, taken when it is queued.
  uint32_t issue() { return ++issued_; }
  // The number of the latest queued signal; 0 when there is none.
  uint32_t latest() const { return issued_; }
  void complete(uint32_t ticket);
  void await(uint32_t ticket) const;

 private:
  std::atomic<uint32_t> issued_{0};
  std::atomic<uint32_t> completed_{0};
};

// One thread at a time queues; the stream's own thread runs the work.
class HostStream : public Stream {
 public:
  explicit HostStream(int64_t threads);
  // Finishes the queued work, then ends the thread.
  ~HostStream() override;

  void launch(const Kernel& kernel, const Launch& launch) override;
  void copy_in(void* device, const void* host, int64_t bytes) override;
  void copy_out(void* host, const void* device, int64_t bytes) override;
  void zero(void* device, int64_t bytes) override;
  void signal(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;

  ThreadTeam& team() { return team_; }

 private:
  enum class Action { Launch, Copy, Zero, Signal, Wait, End };
  struct Item {
    Action action = Action::Launch;
    const Kernel* kernel = nullptr;
    const Launch* launch = nullptr;
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
    HostEvent* event = nullptr;
    uint32_t ticket = 0;
  };
  // A caller that queues more than this waits until half of it has run.
  static constexpr uint32_t kCapacity = 8192;

  void push(const Item& item);
  void serve();
  void run(const Item& item);
  void perform(const Item& item);
  void copy(const Item& item);

  ThreadTeam team_;
  std::unique_ptr<std::array<Item, kCapacity>> ring_;
  std::atomic<uint32_t> pushed_{0};    // items ever queued
  std::atomic<uint32_t> progress_{0};  // items ever run, updated at half the ring and at its end
  std::atomic<bool> asleep_{false};    // the thread waits for items
  // The first error; later work is skipped until synchronize throws it. Accessed only by the thread
  // while items are queued, and by synchronize when none are.
  std::exception_ptr error_;
  std::thread thread_;
};

class HostDevice : public Device {
 public:
  explicit HostDevice(int64_t threads);

  std::string description() const override;
  int64_t memory_bytes() const override;
  int64_t cache_bytes() const override;
  void* allocate(int64_t bytes) override;
  void release(void* memory) override;
  HostMemory allocate_host(int64_t bytes) override;
  std::unique_ptr<Stream> make_stream(std::string_view name) override;
  std::unique_ptr<Event> make_event() override;
  // The peak of one core times the cores that its threads can use.
  std::optional<double> peak_flops(DType dtype) const override;

 private:
  int64_t threads_;
};

// The thread team of the stream that runs this launch.
ThreadTeam& team(const Launch& launch);

// A host device with options.threads threads; 0: one per core.
std::unique_ptr<Device> make_host_device(const DeviceOptions& options);

}  // namespace weft
