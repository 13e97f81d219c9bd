// The interfaces a backend implements: device memory, streams and events. Nothing here names an op;
// kernels are rows of a table (plan/kernel.h). Work on one stream runs in order; work on two
// streams runs in any order unless an event stands between. Errors of asynchronous work are kept
// and thrown by the next synchronize.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/machine.h"
#include "base/tuning.h"
#include "plan/kernel.h"

namespace weft {

// A point in a stream's work that another stream or the host can wait for; reusable.
class Event {
 public:
  virtual ~Event() = default;
};

// An in-order queue of work.
class Stream {
 public:
  virtual ~Stream() = default;
  // Queues the kernel; `launch` outlives its execution.
  virtual void launch(const Kernel& kernel, const Launch& launch) = 0;
  // Queues copies between host and device memory. The host range stays valid until synchronize.
  virtual void copy_in(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, int64_t bytes) = 0;
  // Queues filling with zero bytes.
  virtual void zero(void* device, int64_t bytes) = 0;
  // Queues a mark, or a wait for the latest mark of that event.
  virtual void signal(Event& event) = 0;
  virtual void wait(Event& event) = 0;
  // Blocks the host until all queued work is done; throws the first error of that work.
  virtual void synchronize() = 0;
  // Runs the kernel alone and gives its seconds: what it adds to a step. A stream whose work is
  // queued ahead leaves out what launching costs the host.
  virtual double time(const Kernel& kernel, const Launch& launch) {
    const auto start = std::chrono::steady_clock::now();
    this->launch(kernel, launch);
    synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

// Queued work that a device has kept and queues again, as a whole, on its first stream.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

class Communicator;

// The algorithm of a library that runs a call best on the device that measured it.
struct TunedCall {
  std::string library;  // with its version
  std::string call;
  std::string choice;
  double first_seconds = 0;  // with the library's own first choice
  double seconds = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // "cpu, 2 threads", "NVIDIA H200".
  virtual std::string description() const = 0;
  // All the memory there is; 0 where nothing is kept.
  virtual int64_t memory_bytes() const = 0;
  // The largest cache between its cores and that memory; 0: unknown.
  virtual int64_t cache_bytes() const { return 0; }
  // One block of device memory, aligned for any kernel; DeviceError(OutOfMemory) when there is
  // none.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual std::unique_ptr<Stream> make_stream(std::string_view name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Bytes that can be allocated now; nullopt where the operating system decides.
  virtual std::optional<int64_t> free_bytes() const { return std::nullopt; }
  // Bytes in use now: of a GPU's memory, by whoever; of a host's, what this process has resident,
  // shared memory that it maps included.
  virtual int64_t used_bytes() const { return resident_bytes(); }
  // The most FLOP/s that matmuls in this type could reach, where that is measured; nullopt where
  // the data sheet says (config/device_spec.h).
  virtual std::optional<double> peak_flops(DType dtype) const {
    (void)dtype;
    return std::nullopt;
  }
  // What the host does now and then while it waits for work that another rank may hold up, given
  // when the wait began (steady clock, nanoseconds); throwing ends the wait. Empty: nothing. A
  // device whose kernels wait by themselves needs none.
  virtual void set_watch(const std::function<void(int64_t since)>& watch) { (void)watch; }
  // Measures which algorithm runs the launch best; nullopt where there is no choice.
  virtual std::optional<TunedCall> tune(const Kernel& kernel, const Launch& launch) {
    (void)kernel;
    (void)launch;
    return std::nullopt;
  }
  // Keeps what `queue` puts on these streams, the program `name`, instead of running it; nullptr,
  // and `queue` is not called, on a device that does not record.
  virtual std::unique_ptr<Recording> record(std::string_view name,
                                            std::span<const std::unique_ptr<Stream>> streams,
                                            const std::function<void()>& queue) {
    (void)name;
    (void)streams;
    (void)queue;
    return nullptr;
  }
};

struct DeviceOptions {
  int64_t threads = 0;  // of a host device; 0: one per core
  bool record = true;   // whether a device that can keep whole programs does so
  int64_t index = 0;    // which of the host's devices it is, where there are several
  int64_t needed = 1;   // how many of them the ranks need
  Tuning tuning = {};   // algorithms of its libraries; empty: their first choices
  bool tf32 = false;    // whether it rounds the factors of f32 products to tf32
};

// How ranks find each other's devices.
struct JoinOptions {
  bool share_device = false;  // all ranks use one device, for tests
};

// A backend: a kernel table that can be read anywhere, and a device that needs the hardware.
struct Backend {
  std::string_view name;
  std::span<const Kernel> (*kernels)() = nullptr;
  std::unique_ptr<Device> (*make_device)(const DeviceOptions&) = nullptr;
  // Lets the devices of ranks that are processes exchange data; `hosts` joins what these processes
  // do themselves. Null: `hosts` does both.
  std::unique_ptr<Communicator> (*join)(std::unique_ptr<Communicator> hosts,
                                        const JoinOptions& options) = nullptr;
  std::string_view spec = "cpu";  // the built-in device spec of device.spec = "auto"
  // Config keys that not every backend uses and this one does; setting another's is an error.
  std::span<const std::string_view> own_keys = {};
  bool computes = true;  // false: for plans alone, what is read from its device means nothing
};

// Every backend of this build, from the slow and obvious one to the one that does nothing.
std::span<const Backend> all_backends();

// The backend of that name, which validate() has found to be one.
const Backend& find_backend(std::string_view name);

// The same for one whose results are wanted; the message starts with `subject`, the option and what
// it was set to.
const Backend& find_computing_backend(std::string_view name, const std::string& subject);

}  // namespace weft
