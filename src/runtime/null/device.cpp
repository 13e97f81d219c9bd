// Counts instead of computing.
#include "runtime/null/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace weft {
namespace {

class NullEvent : public Event {};

class NullStream : public Stream {
 public:
  explicit NullStream(NullCounts& counts) : counts_(counts) {}

  void launch(const Kernel&, const Launch& launch) override {
    const Cost cost = cost_of(*launch.call);
    ++counts_.launches;
    counts_.kernel_bytes += cost.bytes;
    counts_.flops += cost.flops;
    counts_.seconds += launch.seconds;
  }
  void copy_in(void*, const void*, int64_t bytes) override { count_copy(bytes); }
  void copy_out(void* host, const void*, int64_t bytes) override {
    std::memset(host, 0, static_cast<size_t>(bytes));
    count_copy(bytes);
  }
  void zero(void*, int64_t) override {}
  void signal(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}

 private:
  void count_copy(int64_t bytes) {
    ++counts_.copies;
    counts_.copied_bytes += bytes;
  }

  NullCounts& counts_;
};

// mmap rejects zero bytes.
size_t mapped_bytes(int64_t bytes) {
  return static_cast<size_t>(std::max<int64_t>(bytes, 1));
}

}  // namespace

NullDevice::~NullDevice() {
  for (const auto& [memory, bytes] : reserved_) ::munmap(memory, mapped_bytes(bytes));
}

std::string NullDevice::description() const {
  return "null, computes nothing";
}

int64_t NullDevice::memory_bytes() const {
  return 0;
}

void* NullDevice::allocate(int64_t bytes) {
  // PROT_NONE memory takes no pages, and a stray kernel faults at once.
  void* memory = ::mmap(nullptr, mapped_bytes(bytes), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw DeviceError(
        cat("null: cannot reserve ", human_bytes(static_cast<double>(bytes)), " of addresses"),
        ExitCode::OutOfMemory);
  }
  reserved_[memory] = bytes;
  counts_.allocated_bytes += bytes;
  return memory;
}

void NullDevice::release(void* memory) {
  const auto found = reserved_.find(memory);
  CHECK(found != reserved_.end(), "released twice or not ours");
  ::munmap(memory, mapped_bytes(found->second));
  counts_.allocated_bytes -= found->second;
  reserved_.erase(found);
}

std::unique_ptr<Stream> NullDevice::make_stream(std::string_view) {
  return std::make_unique<NullStream>(counts_);
}

std::unique_ptr<Event> NullDevice::make_event() {
  return std::make_unique<NullEvent>();
}

std::unique_ptr<Device> make_null_device(const DeviceOptions&) {
  return std::make_unique<NullDevice>();
}

}  // namespace weft
