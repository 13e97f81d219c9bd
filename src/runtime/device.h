// The interfaces a backend implements: device memory, streams and events. Nothing here names an op;
// kernels are rows of a table (plan/kernel.h). Work on one stream runs in order; work on two
// streams runs in any order unless an event orders it. Errors of asynchronous work are kept and
// thrown by the next synchronize.
#pragma once

#include <chrono>
#include <cstddef>
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
  // Queues a signal, or a wait for the latest signal of that event.
  virtual void signal(Event& event) = 0;
  virtual void wait(Event& event) = 0;
  // Blocks the host until all queued work is done; throws the first error of that work.
  virtual void synchronize() = 0;
  // Runs the kernel alone and returns its time in seconds, as it counts in a step. A stream that
  // queues work asynchronously excludes the host's launch overhead.
  virtual double time(const Kernel& kernel, const Launch& launch) {
    const auto start = std::chrono::steady_clock::now();
    this->launch(kernel, launch);
    synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

// Queued work that a device has recorded and can replay as a unit on its first stream.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

class Communicator;

// Host memory that frees itself.
using HostMemory = std::unique_ptr<std::byte[], void (*)(std::byte*)>;

// The library algorithm that is fastest for a call, as measured on this device.
struct TunedCall {
  std::string library;  // with its version
  std::string call;
  std::string choice;
  double first_seconds = 0;  // with the library's default choice
  double seconds = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // "cpu, 2 threads", "NVIDIA H200".
  virtual std::string description() const = 0;
  // Total memory; 0 for a device that stores nothing.
  virtual int64_t memory_bytes() const = 0;
  // The largest cache between its cores and that memory; 0: unknown.
  virtual int64_t cache_bytes() const { return 0; }
  // One block of device memory, aligned for any kernel; DeviceError(OutOfMemory) when there is
  // none.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // Host memory, filled with zeros, to which the device copies at full speed.
  virtual HostMemory allocate_host(int64_t bytes) {
    return {new std::byte[static_cast<size_t>(bytes)](),
            [](std::byte* memory) { delete[] memory; }};
  }
  virtual std::unique_ptr<Stream> make_stream(std::string_view name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Bytes that can be allocated now; nullopt where the operating system decides.
  virtual std::optional<int64_t> free_bytes() const { return std::nullopt; }
  // Bytes in use now: on a GPU, by all processes; on a host, the resident memory of this process,
  // including shared memory that it maps.
  virtual int64_t used_bytes() const { return resident_bytes(); }
  // Peak FLOP/s of matmuls in this type, where measured; nullopt where the data sheet gives it
  // (config/device_spec.h).
  virtual std::optional<double> peak_flops(DType dtype) const {
    (void)dtype;
    return std::nullopt;
  }
  // Sets what the host calls periodically while it waits for work that another rank may delay. The
  // argument is the start of the wait (steady clock, nanoseconds); throwing ends the wait. Empty:
  // nothing. A device whose kernels check for themselves needs none.
  virtual void set_watch(const std::function<void(int64_t since)>& watch) { (void)watch; }
  // Measures which algorithm is fastest for the launch; nullopt where there is no choice.
  virtual std::optional<TunedCall> tune(const Kernel& kernel, const Launch& launch) {
    (void)kernel;
    (void)launch;
    return std::nullopt;
  }
  // Records what `queue` puts on these streams, as the program `name`, instead of running it. On a
  // device that does not record, returns nullptr without calling `queue`.
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
  bool record = true;   // whether a device that can record full programs does so
  int64_t index = 0;    // which of the host's devices, if there are several
  int64_t needed = 1;   // how many devices the ranks need
  Tuning tuning = {};   // algorithms of its libraries; empty: the defaults
  bool tf32 = false;    // whether f32 matmuls round their factors to tf32
};

// How the ranks' devices connect.
struct ConnectOptions {
  bool share_device = false;  // all ranks use one device, for tests
};

// A backend: a kernel table that every machine can read, and a device that needs the hardware.
struct Backend {
  std::string_view name;
  std::span<const Kernel> (*kernels)() = nullptr;
  std::unique_ptr<Device> (*make_device)(const DeviceOptions&) = nullptr;
  // Connects the devices of ranks that are processes; `hosts` is the communicator of these
  // processes. Null: `hosts` does both.
  std::unique_ptr<Communicator> (*connect)(std::unique_ptr<Communicator> hosts,
                                           const ConnectOptions& options) = nullptr;
  std::string_view spec = "cpu";  // the built-in device spec of device.spec = "auto"
  // Config keys that only some backends use and this one does; setting a key of another is an
  // error.
  std::span<const std::string_view> own_keys = {};
  bool computes = true;  // false: for planning only; values read from its device are meaningless
};

// Every backend of this build, from the simplest one to the one that computes nothing.
std::span<const Backend> all_backends();

// The backend of that name, which validate() has checked.
const Backend& find_backend(std::string_view name);

// The same for a backend that must compute results; the message starts with `subject`, the option
// and its value.
const Backend& find_computing_backend(std::string_view name, const std::string& subject);

}  // namespace weft
