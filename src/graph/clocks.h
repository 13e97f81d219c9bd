// The time model of passes and plans. Streams run concurrently; each stream runs its work in order.
// Collectives over one axis share its link, so they are modelled as running one at a time; one over
// a joint axis uses the links of all its axes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/streams.h"

namespace weft {

// The stream that a node runs on.
StreamId stream_of(const Node& node);

struct PlanTime {
  double seconds = 0;             // from the start to the end of the last stream
  double compute_seconds = 0;     // of everything but collectives
  double collective_seconds = 0;  // of collectives, hidden or not

  // Collective time that is not hidden behind compute.
  double exposed_seconds() const { return seconds - compute_seconds; }
};

// One optimizer step: `micro` for all micro-batches but the last, then `last`.
PlanTime step_time(const PlanTime& micro, const PlanTime& last, int64_t micro_batches);

// A unit of work on one stream.
struct Work {
  int64_t stream = index_of(StreamId::Compute);
  std::string_view axis = {};  // of a collective; empty: computation
  double ready = 0;            // when everything it waits for is done
  double seconds = 0;
};

class Clocks {
 public:
  // Starts the work as soon as it is ready and its stream and link are free; returns its end time.
  double run(const Work& work);
  // When the stream finishes all work queued so far.
  double end_of(int64_t stream) const;
  // The totals of all work so far.
  PlanTime time() const { return time_; }

 private:
  std::vector<double> streams_;
  std::map<std::string, double, std::less<>> links_;  // by axis: when it is free
  PlanTime time_;
};

}  // namespace weft
