// Walks the steps of a plan on a device. It knows buffers, streams and events, but no op by name.
// The arena it allocates is exactly the plan's arena_bytes; shared spaces belong to the
// communicator.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "plan/plan.h"
#include "runtime/comm/single_rank.h"
#include "runtime/device.h"

namespace weft {

class Executor {
 public:
  // Allocates the arena, zeroes the persistent part and resolves every step's kernel by name;
  // throws UserError if the table lacks one. `plan`, `device` and `kernels` outlive the executor.
  // `comm` allocates the arena and runs the collectives; it outlives the executor too.
  Executor(const Plan& plan, Device& device, std::span<const Kernel> kernels,
           Communicator& comm = single_rank());
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Copies a bound tensor in or out by name; `bytes` must be the tensor's size. Both block.
  void write(std::string_view name, const void* data, int64_t bytes);
  void read(std::string_view name, void* data, int64_t bytes) const;
  // Copies `bytes` bytes of the tensor in or out, starting at its byte `offset`.
  void write_part(std::string_view name, int64_t offset, const void* data, int64_t bytes);
  void read_part(std::string_view name, int64_t offset, void* data, int64_t bytes) const;
  // Where a bound tensor lies on the device.
  Tensor bound(std::string_view name) const;
  // The part of the arena, on the device, that is in use only while a program runs.
  std::span<char> scratch() const;

  // Queues all steps of a program and waits for them. An error names its step, as far as the device
  // can tell.
  void run(ProgramKind program);

  // Runs the steps one after the other and calls `observe` with the number of each that is done,
  // before the next one starts.
  void run_observed(ProgramKind program, const std::function<void(size_t step)>& observe);
  // Copies result `result` of a step to the host; only from within `observe` it is sure to be
  // there.
  void read_result(ProgramKind program, size_t step, size_t result, void* data,
                   int64_t bytes) const;

  // Runs a program step by step and returns the seconds of each, as measured by its stream. An
  // error names its step exactly.
  std::vector<double> time_steps(ProgramKind program);

  // Bytes allocated for this rank alone: always plan.arena_bytes.
  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  struct PreparedStep;
  class Memory;
  const TensorRef& find(std::string_view name) const;
  char* address(int64_t buffer) const;
  Tensor tensor(const TensorRef& ref) const;
  void prepare(ProgramKind program, std::span<const Kernel> kernels);
  std::unique_ptr<PreparedStep> prepare_step(ProgramKind program, int64_t index,
                                             std::span<const Kernel> kernels);
  void queue(const PreparedStep& step);
  void queue(ProgramKind program);
  void synchronize_all();

  const Plan& plan_;
  Device& device_;
  Communicator& comm_;
  int64_t allocated_bytes_ = 0;
  // Destroyed in reverse order: streams end before the resources of their work.
  std::unique_ptr<Memory> arena_;
  std::vector<std::unique_ptr<Memory>> shared_;
  std::array<std::vector<std::unique_ptr<PreparedStep>>, kPrograms> programs_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::array<std::unique_ptr<Recording>, kPrograms> recordings_;
  std::array<int64_t, kPrograms> runs_ = {};
};

}  // namespace weft
