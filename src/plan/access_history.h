// The access history of the arena while the checker walks a program: for every byte range the last
// write and the reads since, and for every stream which steps of the others are known to have
// ended. Two accesses are ordered if they are on one stream or a chain of events leads from the
// first to the second.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

class AccessHistory {
 public:
  // At first no byte of the arena belongs to a buffer, and no event is signalled.
  AccessHistory(int64_t arena_bytes, int64_t num_streams, int64_t num_events);

  // The byte range of a buffer.
  struct Range {
    int64_t buffer = -1;
    int64_t begin = 0;
    int64_t end = 0;
  };

  // What is wrong with an access: it conflicts with an earlier step over bytes last written by
  // `buffer` (-1: none). `step` is -1 if the bytes were never written through the accessed buffer.
  struct Conflict {
    int64_t step = -1;
    int64_t buffer = -1;
    bool unordered = false;  // correct contents, but no event orders the two steps
  };

  // Marks a range as already written before the first step.
  void preset(const Range& range);

  // Begins a step on a stream; accesses and events up to the next begin_step belong to it.
  void begin_step(int64_t step, int64_t stream);
  // Orders this step after the event's latest signal; false if it was never signalled.
  bool wait(int64_t event);
  std::optional<Conflict> read(const Range& range);
  std::optional<Conflict> write(const Range& range);
  void signal(int64_t event);

 private:
  using Clock = std::vector<int64_t>;  // per stream: number of its steps known to have ended

  struct Access {
    int64_t step = -1;
    int64_t stream = 0;
    int64_t tick = 0;
  };
  // A range of the arena with one history; the map's key is its first byte.
  struct Segment {
    int64_t end = 0;
    int64_t buffer = -1;
    Access write;
    std::vector<Access> reads;  // at most one per stream: the latest
  };
  using Segments = std::map<int64_t, Segment>;

  bool ordered(const Access& earlier) const;
  // Splits a segment so that one begins at `at`.
  Segments::iterator split(int64_t at);

  Segments segments_;
  std::vector<Clock> clocks_;  // by stream
  std::vector<Clock> events_;  // empty: not signalled
  Access now_;
};

}  // namespace weft
