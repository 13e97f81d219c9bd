// The host as a device: memory is ordinary memory, a stream is a thread with a queue. The stream
// named "compute" runs its kernels on a thread team; every other stream runs on its own thread
// alone, so that copies or communication go on beside the computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/cpu/thread_team.h"
#include "runtime/device.h"

namespace weft {

// Counts marks: a wait holds for the marks queued before it.
class HostEvent : public Event {
 public:
  // The number of the next mark, taken when it is queued.
  int64_t issue();
  // The number of the latest mark that was queued; 0 when there is none.
  int64_t latest();
  void complete(int64_t mark);
  void await(int64_t mark);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t issued_ = 0;
  int64_t completed_ = 0;
};

class HostStream : public Stream {
 public:
  explicit HostStream(int64_t threads);
  // Runs what is queued, then ends the thread.
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
  enum class Action { Launch, Copy, Zero, Signal, Wait };
  struct Item {
    Action action = Action::Launch;
    const Kernel* kernel = nullptr;
    const Launch* launch = nullptr;
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
    HostEvent* event = nullptr;
    int64_t mark = 0;
  };

  void push(const Item& item);
  void serve();
  void perform(const Item& item);

  ThreadTeam team_;
  std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable drained_;
  std::deque<Item> queue_;
  bool busy_ = false;
  bool ending_ = false;
  std::exception_ptr error_;  // the first; later work is skipped until synchronize throws it
  std::thread thread_;
};

class HostDevice : public Device {
 public:
  explicit HostDevice(int64_t threads);

  std::string description() const override;
  int64_t memory_bytes() const override;
  void* allocate(int64_t bytes) override;
  void release(void* memory) override;
  std::unique_ptr<Stream> make_stream(std::string_view name) override;
  std::unique_ptr<Event> make_event() override;

 private:
  int64_t threads_;
};

// The team of the stream that runs this launch.
ThreadTeam& team(const Launch& launch);

// A host device with that many threads; 0: one per core.
std::unique_ptr<Device> make_host_device(const DeviceOptions& options);

}  // namespace weft
