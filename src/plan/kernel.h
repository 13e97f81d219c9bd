// What the planner knows about a kernel: a row of a backend's table. The table is passed to the
// planner, so a plan for a device can be made on a machine without it. Rows of one op are in order
// of preference.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// Yes, or no with a reason.
struct Decision {
  bool allowed = true;
  std::string why;

  static Decision yes() { return {}; }
  static Decision no(std::string reason) { return {false, std::move(reason)}; }
};

// A tensor as a kernel sees it: contiguous, row-major, in the memory of the kernel's device.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::F32;
  Shape shape;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int64_t elements() const { return count(shape); }
};

inline int64_t row_length(const Tensor& tensor) {
  return row_length(tensor.shape);
}
inline int64_t row_count(const Tensor& tensor) {
  return row_count(tensor.shape);
}

class Communicator;
class Stream;

// Everything one kernel launch may use. Operands and results are in signature order; an absent
// optional operand is left out. It stays alive and unchanged until the stream has run the launch.
struct Launch {
  const Call* call = nullptr;  // local types and attributes
  std::vector<Tensor> operands;
  std::vector<Tensor> results;
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
  Stream* stream = nullptr;
  double seconds = 0;                         // predicted by the plan
  Communicator* comm = nullptr;               // of the run; nullptr if launched outside a plan
  int64_t channel = 0;                        // for collectives: index of the plan's stream
  std::shared_ptr<const void> prepared = {};  // what the kernel's prepare made
  std::string_view where = {};                // its step in the plan, op and path, for messages
};

struct Kernel {
  std::string_view op;
  std::string_view name;
  // Whether it supports this call (local types).
  Decision (*supports)(const Call&) = nullptr;
  // Bytes of scratch memory it needs; nullptr: none.
  int64_t (*workspace)(const Call&) = nullptr;
  // Runs the kernel, or enqueues it on the stream of an asynchronous device.
  void (*launch)(const Launch&) = nullptr;
  // Whether the results of a gather may lie in memory shared by the ranks of its axis: no rank
  // writes before all have arrived, and none continues before all have written.
  bool shared_results = false;
  // Creates, once, what every run of the launch can reuse; nullptr: nothing.
  std::shared_ptr<const void> (*prepare)(const Launch&) = nullptr;
  // Bytes of scratch memory of a collective, which depend on the number of ranks in its group.
  int64_t (*group_workspace)(const Call&, int64_t ranks) = nullptr;
  // Whether the order of its floating-point sums over ranks is unspecified.
  bool any_order = false;
};

// Call once, when the launch is fully set up and before its first run.
inline void prepare(const Kernel& kernel, Launch& launch) {
  if (kernel.prepare != nullptr) launch.prepared = kernel.prepare(launch);
}

// Whether the planner may place result 0 in this operand's memory if the operand is not needed
// afterwards. Every kernel of an elementwise or in_place op must support this: it reads each
// element before writing the result there.
bool may_share_memory(const Call& call, size_t operand);

// The first row that supports the call; throws UserError with the reason of every candidate.
const Kernel& choose_kernel(std::span<const Kernel> kernels, const Call& call,
                            std::string_view backend, std::string_view value_name);

}  // namespace weft
