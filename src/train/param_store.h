// The parameters of a run wherever they live: whole on this rank, or cut over a mesh axis inside
// flat tensors. Callers see whole parameters by number; who owns what is the plan's business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/executor.h"
#include "train/compile.h"

namespace weft {

class ParamStore {
 public:
  // `comm` is null in a run of one process. Everything given outlives the store.
  ParamStore(const Compiled& compiled, Executor& executor, Device& device, Communicator* comm);

  // Sets this rank's part of every parameter to its initial values; makes nothing else. Copies in
  // the compute type follow whatever is written.
  void initialize(uint64_t seed);
  // Takes this rank's part of whole values.
  void write(size_t param, std::span<const float> values);
  // Gives whole values. With several ranks all of them read the same parameters in the same order;
  // one that gives no room for values only takes part. Takes no device memory beside the plan's.
  void read(size_t param, std::span<float> values);
  // A program has run: parameters may have changed.
  void forget_gathered();

 private:
  // Where a parameter lies: in which binding and, if flat, from which element of the whole flat on.
  struct Location {
    const Binding* binding = nullptr;
    const Binding* low = nullptr;  // the same in the compute type, where the plan keeps that
    size_t member = 0;
    int64_t first = 0;
  };
  // The elements of a parameter that this rank holds, and where they begin in its cut.
  struct Part {
    int64_t from = 0;
    int64_t elements = 0;
    int64_t at = 0;
  };

  void make(const ParamInfo& param, uint64_t seed, int64_t first, std::span<float> values) const;
  int64_t host_ranks() const;  // ranks on this host, this one included
  Part own_part(const Location& location, int64_t elements) const;
  void write_own(const Location& location, const Part& part, std::span<const float> values);
  void write_rounded(const Binding& binding, int64_t first, std::span<const float> values);
  int64_t elements_at_once(const Binding& binding) const;
  void gather(const Binding& binding, bool keep);

  const Compiled& compiled_;
  Executor& executor_;
  Device& device_;
  Communicator* comm_;
  std::vector<Location> locations_;  // by parameter
  // By parameter: the whole copy in the compute type that the step reads where only the update is
  // sharded (ZeRO-1), or null.
  std::vector<const Binding*> copies_;
  // The flat that was read last, whole if it is kept: its parameters are mostly read one after the
  // other.
  const Binding* gathered_ = nullptr;
  std::vector<float> gathered_values_;
};

}  // namespace weft
