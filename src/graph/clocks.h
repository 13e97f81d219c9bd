// The time model of passes and plans. Streams run beside each other, each does its work in order.
// Collectives over one axis share its link: beside each other they would take as long as one after
// the other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

// The streams of a plan: collectives that are started run beside computation, all else in it.
inline constexpr int64_t kComputeStream = 0;
inline constexpr int64_t kGatherStream = 1;
inline constexpr int64_t kReduceStream = 2;
int64_t stream_of(const OpDef& op);

struct PlanTime {
  double seconds = 0;             // from the start to the end of the last stream
  double compute_seconds = 0;     // of all that is no collective
  double collective_seconds = 0;  // of collectives, hidden or not

  // What the collectives add to the time of the computation.
  double exposed_seconds() const { return seconds - compute_seconds; }
};

// One optimizer step: `micro` for all micro-batches but the last, then `last`.
PlanTime step_time(const PlanTime& micro, const PlanTime& last, int64_t micro_batches);

// Something that one stream does.
struct Work {
  int64_t stream = kComputeStream;
  std::string_view axis = {};  // of a collective; empty: computation
  double ready = 0;            // when all it waits for is done
  double seconds = 0;
};

class Clocks {
 public:
  // Starts the work as soon as it is ready and its stream and link are free; gives its end.
  double run(const Work& work);
  // The end of the work that the stream has been given so far.
  double end_of(int64_t stream) const;
  // Of all work so far.
  PlanTime time() const { return time_; }

 private:
  std::vector<double> streams_;
  std::map<std::string, double, std::less<>> links_;  // by axis: when it is free
  PlanTime time_;
};

}  // namespace weft
