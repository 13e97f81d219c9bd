// Walks the steps of a plan on a device. It knows buffers, streams and events, and no op by name.
// The arena it allocates is exactly the plan's arena_bytes.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "plan/plan.h"
#include "runtime/device.h"

namespace weft {

class Executor {
 public:
  // Allocates the arena, zeroes the persistent part and resolves every step's kernel by name;
  // throws UserError if the table lacks one. `plan`, `device` and `kernels` outlive the executor.
  Executor(const Plan& plan, Device& device, std::span<const Kernel> kernels);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Copies a bound tensor in or out by name; `bytes` must be the tensor's size. Both block.
  void write(std::string_view name, const void* data, int64_t bytes);
  void read(std::string_view name, void* data, int64_t bytes) const;

  // Queues all steps of a program and waits for them.
  void run(ProgramKind program);

  // Bytes allocated on the device: always plan.arena_bytes.
  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  struct PreparedStep;
  const TensorRef& find(std::string_view name) const;
  Tensor tensor(const TensorRef& ref) const;
  void prepare(std::span<const Kernel> kernels);

  const Plan& plan_;
  Device& device_;
  char* arena_ = nullptr;
  int64_t allocated_bytes_ = 0;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Event>> events_;
  std::array<std::vector<PreparedStep>, kPrograms> programs_;
};

}  // namespace weft
