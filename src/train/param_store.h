// The parameters of a run and their states in any layout: replicated on this rank, or sharded over
// a mesh axis inside flat tensors. Callers see parameters by index and elements by their place in
// the full parameter; the plan decides who stores what.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compile/compile.h"
#include "plan/index_map.h"
#include "plan/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/executor.h"

namespace weft {

// Provides elements first, first + 1, ... of a parameter or of its state.
using ElementValues = std::function<void(size_t param, int64_t first, std::span<float> values)>;

class ParamStore {
 public:
  // All arguments outlive the store.
  ParamStore(const Compiled& compiled, Executor& executor, Device& device, Communicator& comm);

  // Which elements this rank stores, and where.
  const IndexMap& map() const { return map_; }

  // Sets what this rank stores of a parameter, and its copies in the compute type. Asks for no
  // other elements, and for a bounded number at a time.
  void set(size_t param, const ElementValues& values);
  // The same for the state in this role of every parameter.
  void set_states(StateRole role, const ElementValues& values);
  // The tensor that holds the state of a parameter on this rank; nullptr if it is not trained.
  const Binding* state(size_t param, StateRole role) const;

  // Returns the full values. All ranks must read the same parameters in the same order; a rank that
  // passes an empty span only participates. Uses no device memory beyond the plan's.
  void read(size_t param, std::span<float> values);
  // Call after a program has run: parameters may have changed.
  void forget_gathered();

  // Ranks on this host, including this one.
  int64_t host_ranks() const;

 private:
  // The places of a parameter on this rank besides that of the map.
  struct Copies {
    const Binding* low = nullptr;   // in the compute type, in the layout of the parameter
    const Binding* full = nullptr;  // the full parameter that the step reads if only the update is
                                    // sharded (ZeRO-1)
  };

  void write_rounded(const Binding& binding, int64_t first, std::span<const float> values);
  // The ranks along this axis together have all elements; "": every rank has them.
  std::string group_axis(const Binding& binding) const;
  int64_t elements_at_once(const Binding& binding) const;
  void gather(const Binding& binding, bool keep);

  const Compiled& compiled_;
  Executor& executor_;
  Device& device_;
  Communicator& comm_;
  IndexMap map_;
  std::vector<Copies> copies_;  // by parameter
  // The flat tensor that was read last, in full if it is kept: its parameters are usually read one
  // after the other.
  const Binding* gathered_ = nullptr;
  std::vector<float> gathered_values_;
};

}  // namespace weft
