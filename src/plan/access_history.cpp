// Vector clocks over streams, and an interval map over the arena.
#include "plan/access_history.h"

#include <algorithm>

namespace weft {

AccessHistory::AccessHistory(int64_t arena_bytes, int64_t num_streams, int64_t num_events)
    : clocks_(num_streams, Clock(num_streams, 0)), events_(num_events) {
  segments_[0].end = arena_bytes;
}

void AccessHistory::preset(const Range& range) {
  if (range.begin == range.end) return;
  const auto begin = split(range.begin);
  const auto end = split(range.end);
  for (auto it = begin; it != end; ++it) it->second.buffer = range.buffer;
}

void AccessHistory::begin_step(int64_t step, int64_t stream) {
  now_ = {step, stream, ++clocks_[stream][stream]};
}

bool AccessHistory::wait(int64_t event) {
  const Clock& signalled = events_[event];
  Clock& clock = clocks_[now_.stream];
  for (size_t i = 0; i < signalled.size(); ++i) clock[i] = std::max(clock[i], signalled[i]);
  return !signalled.empty();
}

void AccessHistory::signal(int64_t event) {
  events_[event] = clocks_[now_.stream];
}

std::optional<AccessHistory::Conflict> AccessHistory::read(const Range& range) {
  if (range.begin == range.end) return std::nullopt;
  const auto begin = split(range.begin);
  const auto end = split(range.end);
  for (auto it = begin; it != end; ++it) {
    Segment& segment = it->second;
    if (segment.buffer != range.buffer) return Conflict{segment.write.step, segment.buffer, false};
    if (!ordered(segment.write)) return Conflict{segment.write.step, segment.buffer, true};
    const auto same = std::find_if(segment.reads.begin(), segment.reads.end(),
                                   [&](const Access& a) { return a.stream == now_.stream; });
    if (same == segment.reads.end()) {
      segment.reads.push_back(now_);
    } else {
      *same = now_;
    }
  }
  return std::nullopt;
}

std::optional<AccessHistory::Conflict> AccessHistory::write(const Range& range) {
  if (range.begin == range.end) return std::nullopt;
  const auto begin = split(range.begin);
  const auto end = split(range.end);
  for (auto it = begin; it != end; ++it) {
    const Segment& segment = it->second;
    if (!ordered(segment.write)) return Conflict{segment.write.step, segment.buffer, true};
    for (const Access& read : segment.reads) {
      if (!ordered(read)) return Conflict{read.step, segment.buffer, true};
    }
  }
  segments_.erase(std::next(begin), end);
  begin->second = {range.end, range.buffer, now_, {}};
  return std::nullopt;
}

bool AccessHistory::ordered(const Access& earlier) const {
  return earlier.step < 0 || clocks_[now_.stream][earlier.stream] >= earlier.tick;
}

AccessHistory::Segments::iterator AccessHistory::split(int64_t at) {
  const auto next = segments_.upper_bound(at);
  const auto holder = std::prev(next);  // the first segment begins at 0
  if (holder->first == at) return holder;
  if (holder->second.end <= at) return next;  // the end of the arena
  Segment upper = holder->second;
  holder->second.end = at;
  return segments_.emplace_hint(next, at, std::move(upper));
}

}  // namespace weft
