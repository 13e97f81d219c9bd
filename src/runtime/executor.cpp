// The constructor prepares everything a launch needs; running a program only queues.
#include "runtime/executor.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "base/error.h"
#include "runtime/run_launch.h"

namespace weft {
namespace {

const Kernel& find_kernel(std::span<const Kernel> kernels, const Step& step) {
  const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
    return kernel.op == step.op && kernel.name == step.kernel;
  });
  USER_CHECK(found != kernels.end(), "the backend has no kernel ", step.op, ".", step.kernel,
             "; the plan was made for another backend or build");
  return *found;
}

}  // namespace

struct Executor::PreparedStep {
  const Kernel* kernel = nullptr;
  Call call;
  std::string place;  // for messages; the launch refers to it
  Launch launch;
  std::vector<Event*> waits;
  Event* signal = nullptr;
};

// One block of memory.
class Executor::Memory {
 public:
  Memory(Device& device, Communicator& comm, int64_t bytes)
      : device_(device), comm_(comm), base_(comm.allocate(bytes, device)) {}
  // Shared with the ranks along the axis.
  Memory(Device& device, Communicator& comm, const SharedSpace& space)
      : device_(device),
        comm_(comm),
        base_(comm.allocate_shared(space.axis, space.bytes, device)) {}
  ~Memory() { comm_.release(base_, device_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* at(int64_t offset) const { return static_cast<char*>(base_) + offset; }

 private:
  Device& device_;
  Communicator& comm_;
  void* base_ = nullptr;
};

Executor::Executor(const Plan& plan, Device& device, std::span<const Kernel> kernels,
                   Communicator& comm)
    : plan_(plan), device_(device), comm_(comm) {
  if (comm.is_supervised()) {
    device_.set_watch([&comm](int64_t since) { comm.watch({.waiting_since = since}); });
  }
  for (const std::string& name : plan.streams) streams_.push_back(device.make_stream(name));
  for (int64_t i = 0; i < plan.num_events; ++i) events_.push_back(device.make_event());
  CHECK(!streams_.empty() && std::ssize(streams_) <= kHostChannel, "a plan of ", streams_.size(),
        " streams");
  comm_.make_groups(collective_groups(plan));
  arena_ = std::make_unique<Memory>(device_, comm_, plan.arena_bytes);
  for (const SharedSpace& space : plan.shared) {
    shared_.push_back(std::make_unique<Memory>(device_, comm_, space));
  }
  allocated_bytes_ = plan.arena_bytes;
  for (int i = 0; i < kPrograms; ++i) prepare(static_cast<ProgramKind>(i), kernels);
  streams_.front()->zero(arena_->at(0), plan.persistent_bytes);
  streams_.front()->synchronize();
}

Executor::~Executor() {
  device_.set_watch({});
}

void Executor::prepare(ProgramKind program, std::span<const Kernel> kernels) {
  const int64_t steps = static_cast<int64_t>(plan_.program(program).size());
  for (int64_t i = 0; i < steps; ++i) {
    programs_[static_cast<size_t>(program)].push_back(prepare_step(program, i, kernels));
  }
}

std::unique_ptr<Executor::PreparedStep> Executor::prepare_step(ProgramKind program, int64_t index,
                                                               std::span<const Kernel> kernels) {
  const Step& step = plan_.program(program)[index];
  auto prepared = std::make_unique<PreparedStep>();
  prepared->call = call_of(step);
  prepared->place = step_label(program, index, step);
  with_place(prepared->place, [&] { prepared->kernel = &find_kernel(kernels, step); });
  Launch& launch = prepared->launch;
  launch.where = prepared->place;
  launch.call = &prepared->call;
  for (const TensorRef& ref : step.operands) launch.operands.push_back(tensor(ref));
  for (const TensorRef& ref : step.results) launch.results.push_back(tensor(ref));
  if (step.workspace != -1) {
    launch.workspace = address(step.workspace);
    launch.workspace_bytes = plan_.buffers.at(step.workspace).bytes;
  }
  launch.stream = streams_.at(step.stream).get();
  launch.seconds = step.seconds;
  launch.comm = &comm_;
  launch.channel = step.stream;
  with_place(prepared->place, [&] { weft::prepare(*prepared->kernel, launch); });
  for (const int64_t event : step.waits) prepared->waits.push_back(events_.at(event).get());
  if (step.signal != -1) prepared->signal = events_.at(step.signal).get();
  return prepared;
}

char* Executor::address(int64_t buffer) const {
  const Buffer& found = plan_.buffers.at(buffer);
  const Memory& memory = found.shared < 0 ? *arena_ : *shared_.at(found.shared);
  return memory.at(found.offset);
}

Tensor Executor::tensor(const TensorRef& ref) const {
  return {address(ref.buffer) + ref.offset, ref.dtype, ref.shape};
}

const TensorRef& Executor::find(std::string_view name) const {
  for (const auto* list : {&plan_.inputs, &plan_.params, &plan_.states, &plan_.outputs}) {
    for (const Binding& binding : *list) {
      if (binding.name == name) return binding.tensor;
    }
  }
  throw InternalError(cat("plan ", plan_.name, " binds no \"", name, "\""));
}

void Executor::write(std::string_view name, const void* data, int64_t bytes) {
  const TensorRef& ref = find(name);
  CHECK(bytes == tensor_bytes(ref), name, " is ", tensor_bytes(ref), " bytes, given ", bytes);
  streams_.front()->copy_in(tensor(ref).data, data, bytes);
  streams_.front()->synchronize();
}

void Executor::read(std::string_view name, void* data, int64_t bytes) const {
  const TensorRef& ref = find(name);
  CHECK(bytes == tensor_bytes(ref), name, " is ", tensor_bytes(ref), " bytes, given ", bytes);
  streams_.front()->copy_out(data, tensor(ref).data, bytes);
  streams_.front()->synchronize();
}

void Executor::write_part(std::string_view name, int64_t offset, const void* data, int64_t bytes) {
  const TensorRef& ref = find(name);
  CHECK(offset >= 0 && offset + bytes <= tensor_bytes(ref), name, " is ", tensor_bytes(ref),
        " bytes, given ", bytes, " at ", offset);
  streams_.front()->copy_in(static_cast<char*>(tensor(ref).data) + offset, data, bytes);
  streams_.front()->synchronize();
}

void Executor::read_part(std::string_view name, int64_t offset, void* data, int64_t bytes) const {
  const TensorRef& ref = find(name);
  CHECK(offset >= 0 && offset + bytes <= tensor_bytes(ref), name, " is ", tensor_bytes(ref),
        " bytes, asked for ", bytes, " at ", offset);
  streams_.front()->copy_out(data, static_cast<const char*>(tensor(ref).data) + offset, bytes);
  streams_.front()->synchronize();
}

Tensor Executor::bound(std::string_view name) const {
  return tensor(find(name));
}

std::span<char> Executor::scratch() const {
  return {arena_->at(plan_.persistent_bytes),
          static_cast<size_t>(plan_.arena_bytes - plan_.persistent_bytes)};
}

void Executor::run(ProgramKind program) {
  std::exception_ptr error;
  try {
    queue(program);
  } catch (...) {
    error = std::current_exception();
  }
  // Queued work still uses the launches and the arena, so finish it before an error leaves.
  try {
    synchronize_all();
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  if (error) std::rethrow_exception(error);
}

std::vector<double> Executor::time_steps(ProgramKind program) {
  std::vector<double> seconds;
  for (const auto& step : programs_[static_cast<size_t>(program)]) {
    Stream& stream = *step->launch.stream;
    for (Event* event : step->waits) stream.wait(*event);
    seconds.push_back(stream.time(*step->kernel, step->launch));
    if (step->signal != nullptr) stream.signal(*step->signal);
  }
  return seconds;
}

void Executor::run_observed(ProgramKind program, const std::function<void(size_t)>& observe) {
  const auto& steps = programs_[static_cast<size_t>(program)];
  for (size_t i = 0; i < steps.size(); ++i) {
    queue(*steps[i]);
    synchronize_all();
    observe(i);
  }
}

void Executor::read_result(ProgramKind program, size_t step, size_t result, void* data,
                           int64_t bytes) const {
  const PreparedStep& prepared = *programs_[static_cast<size_t>(program)].at(step);
  const Tensor& tensor = prepared.launch.results.at(result);
  CHECK(bytes == tensor.elements() * dtype_bytes(tensor.dtype), "a result of ",
        tensor.elements() * dtype_bytes(tensor.dtype), " bytes, asked for ", bytes);
  streams_.front()->copy_out(data, tensor.data, bytes);
  streams_.front()->synchronize();
}

// The first run triggers lazy initialisation in libraries; from the second on the device may replay
// its recording.
void Executor::queue(ProgramKind program) {
  const auto p = static_cast<size_t>(program);
  const auto queue_steps = [&] {
    for (const auto& step : programs_[p]) queue(*step);
  };
  if (runs_[p]++ == 1) {
    recordings_[p] = device_.record(program_name(program), streams_, queue_steps);
  }
  if (recordings_[p]) {
    recordings_[p]->replay();
  } else {
    queue_steps();
  }
}

void Executor::queue(const PreparedStep& step) {
  Stream& stream = *step.launch.stream;
  for (Event* event : step.waits) stream.wait(*event);
  stream.launch(*step.kernel, step.launch);
  if (step.signal != nullptr) stream.signal(*step.signal);
}

void Executor::synchronize_all() {
  std::exception_ptr error;
  for (const auto& stream : streams_) {
    try {
      stream->synchronize();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace weft
