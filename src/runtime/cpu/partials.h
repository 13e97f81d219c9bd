// Sums over rows with the same bits for any number of threads: rows are split into chunks of a
// fixed size, one thread sums each chunk into its own line of workspace, and the lines are added in
// order.
#pragma once

#include <cstdint>

#include "plan/kernel.h"
#include "runtime/cpu/thread_team.h"

namespace weft {

class Partials {
 public:
  // Workspace for sums of `length` elements over `rows` rows.
  static int64_t bytes(int64_t rows, int64_t length);

  Partials(int64_t rows, int64_t length, void* workspace);

  int64_t chunks() const;
  int64_t first_row(int64_t chunk) const;
  int64_t end_row(int64_t chunk) const;
  // The chunk's line, zeroed.
  float* start(int64_t chunk) const;
  // result = the sum of all lines.
  void combine(ThreadTeam& team, const Tensor& result) const;

 private:
  int64_t rows_;
  int64_t length_;
  float* lines_;
};

}  // namespace weft
