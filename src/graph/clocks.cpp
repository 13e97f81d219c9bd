#include "graph/clocks.h"

#include <algorithm>

#include "graph/comm_cost.h"

namespace weft {

StreamId stream_of(const Node& node) {
  if (!is_start(*node.op)) return StreamId::Compute;
  return is_flat_collective(node) ? node.op->collective->stream : StreamId::Activation;
}

PlanTime step_time(const PlanTime& micro, const PlanTime& last, int64_t micro_batches) {
  const auto times = static_cast<double>(micro_batches - 1);
  return {.seconds = last.seconds + times * micro.seconds,
          .compute_seconds = last.compute_seconds + times * micro.compute_seconds,
          .collective_seconds = last.collective_seconds + times * micro.collective_seconds};
}

double Clocks::run(const Work& work) {
  const auto stream = static_cast<size_t>(work.stream);
  if (stream >= streams_.size()) streams_.resize(stream + 1, 0.0);
  double start = std::max(streams_[stream], work.ready);
  if (work.axis.empty()) {
    time_.compute_seconds += work.seconds;
  } else {
    const std::vector<std::string_view> axes = joint_axes(work.axis);
    for (const std::string_view axis : axes) {
      const auto link = links_.find(axis);
      if (link != links_.end()) start = std::max(start, link->second);
    }
    for (const std::string_view axis : axes) {
      links_.insert_or_assign(std::string(axis), start + work.seconds);
    }
    time_.collective_seconds += work.seconds;
  }
  streams_[stream] = start + work.seconds;
  time_.seconds = std::max(time_.seconds, streams_[stream]);
  return streams_[stream];
}

double Clocks::end_of(int64_t stream) const {
  const auto index = static_cast<size_t>(stream);
  return index < streams_.size() ? streams_[index] : 0;
}

}  // namespace weft
