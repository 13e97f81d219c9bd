// A device that counts and computes nothing: plans of any size run on any machine. Its memory is a
// reserved address range without pages; reads return zero.
#pragma once

#include <map>

#include "runtime/device.h"

namespace weft {

// What the device has been asked to do since it was created.
struct NullCounts {
  int64_t launches = 0;
  int64_t copies = 0;
  int64_t copied_bytes = 0;
  double kernel_bytes = 0;  // operands and results of all launches, by their cost
  double flops = 0;
  double seconds = 0;  // predicted time of all launches in sequence
  int64_t allocated_bytes = 0;
};

class NullDevice : public Device {
 public:
  ~NullDevice() override;

  std::string description() const override;
  int64_t memory_bytes() const override;
  void* allocate(int64_t bytes) override;
  void release(void* memory) override;
  std::unique_ptr<Stream> make_stream(std::string_view name) override;
  std::unique_ptr<Event> make_event() override;

  const NullCounts& counts() const { return counts_; }

 private:
  NullCounts counts_;
  std::map<void*, int64_t> reserved_;
};

std::unique_ptr<Device> make_null_device(const DeviceOptions& options);

}  // namespace weft
