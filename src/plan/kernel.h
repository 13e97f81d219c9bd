// What the planner knows of a kernel: a row of a backend's table. The table is an argument of
// planning, so a plan for a device can be made on a machine that does not have it. Rows of one op
// stand in order of preference.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// A yes, or a no with its reason.
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
  Communicator* comm = nullptr;               // of a run with several ranks
  int64_t channel = 0;                        // for collectives: the index of the plan's stream
  std::shared_ptr<const void> prepared = {};  // what the kernel's prepare made
  std::string_view where = {};                // its step in the plan, op and path, for messages
};

struct Kernel {
  std::string_view op;
  std::string_view name;
  // May it run this call (local types)?
  Decision (*supports)(const Call&) = nullptr;
  // Bytes of scratch memory it needs; nullptr: none.
  int64_t (*workspace)(const Call&) = nullptr;
  // Runs it, or puts it on the stream of a device that works asynchronously.
  void (*launch)(const Launch&) = nullptr;
  // Whether the results of a gather may lie in memory that the ranks of its axis have in common:
  // no rank writes before all have come, and none goes on before all have written.
  bool common_results = false;
  // Makes, once, what every run of the launch can use again; nullptr: nothing.
  std::shared_ptr<const void> (*prepare)(const Launch&) = nullptr;
  // Scratch memory of a collective, whose need depends on the ranks of its group.
  int64_t (*group_workspace)(const Call&, int64_t ranks) = nullptr;
  // Whether its floating sums over ranks are made in an order that nobody promises.
  bool any_order = false;
};

// To be called when the launch is complete, before it runs for the first time.
inline void prepare(const Kernel& kernel, Launch& launch) {
  if (kernel.prepare != nullptr) launch.prepared = kernel.prepare(launch);
}

// Whether the planner may put result 0 on this operand's memory when nothing needs the operand
// afterwards. Every kernel of an elementwise or in_place op has to work that way: it reads an
// element before it, and nothing else, writes there.
bool may_share_memory(const Call& call, size_t operand);

// The first row that supports the call; throws UserError naming every candidate's reason.
const Kernel& choose_kernel(std::span<const Kernel> kernels, const Call& call,
                            std::string_view backend, std::string_view value_name);

}  // namespace weft
