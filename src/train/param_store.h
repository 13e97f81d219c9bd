// The parameters of a run in any layout: replicated on this rank, or sharded over a mesh axis
// inside flat tensors. Callers see full parameters by index; the plan decides who owns what.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compile/compile.h"
#include "plan/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/executor.h"

namespace weft {

class ParamStore {
 public:
  // `comm` is null in a run of one process. All arguments outlive the store.
  ParamStore(const Compiled& compiled, Executor& executor, Device& device, Communicator& comm);

  // Sets this rank's part of every parameter to its initial values and generates nothing else.
  // Copies in the compute type are always updated along with the parameters.
  void initialize(uint64_t seed);
  // Stores this rank's part of the full values.
  void write(size_t param, std::span<const float> values);
  // Returns the full values. All ranks must read the same parameters in the same order; a rank that
  // passes an empty span only participates. Uses no device memory beyond the plan's.
  void read(size_t param, std::span<float> values);
  // Call after a program has run: parameters may have changed.
  void forget_gathered();

 private:
  // Where a parameter is stored: its binding and, if flat, its first element in the full flat
  // tensor.
  struct Location {
    const Binding* binding = nullptr;
    const Binding* low = nullptr;  // the copy in the compute type, if the plan keeps one
    size_t member = 0;
    int64_t first = 0;
  };
  // The elements of a parameter that this rank holds, and where they start in its shard.
  struct Part {
    int64_t from = 0;
    int64_t elements = 0;
    int64_t at = 0;
  };

  void make(const ParamInfo& param, uint64_t seed, int64_t first, std::span<float> values) const;
  int64_t host_ranks() const;  // including this rank
  Part own_part(const Location& location, int64_t elements) const;
  void write_own(const Location& location, const Part& part, std::span<const float> values);
  void write_rounded(const Binding& binding, int64_t first, std::span<const float> values);
  int64_t elements_at_once(const Binding& binding) const;
  void gather(const Binding& binding, bool keep);

  const Compiled& compiled_;
  Executor& executor_;
  Device& device_;
  Communicator& comm_;
  std::vector<Location> locations_;  // by parameter
  // By parameter: the full copy in the compute type that the step reads when only the update is
  // sharded (ZeRO-1), or null.
  std::vector<const Binding*> copies_;
  // The flat tensor that was read last, in full if it is kept: its parameters are usually read one
  // after the other.
  const Binding* gathered_ = nullptr;
  std::vector<float> gathered_values_;
};

}  // namespace weft
