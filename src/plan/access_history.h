// What the checker remembers of the arena while it walks a program: for every byte range the last
// write and the reads since, and for every stream how much of the others' work has surely ended.
// Two accesses are ordered when they are on one stream or an event path leads from the first to the
// second.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

class AccessHistory {
 public:
  // The arena's bytes belong to no buffer yet; `num_events` events, none signalled.
  AccessHistory(int64_t arena_bytes, int64_t num_streams, int64_t num_events);

  // A byte range, the whole of one buffer.
  struct Range {
    int64_t buffer = -1;
    int64_t begin = 0;
    int64_t end = 0;
  };

  // What is wrong with an access: it conflicts with an earlier step (or finds bytes never written
  // by its own buffer: step -1), over bytes last written by `buffer` (-1: nobody).
  struct Conflict {
    int64_t step = -1;
    int64_t buffer = -1;
    bool unordered = false;  // right contents, but no event between the two steps
  };

  // Marks a range as holding its buffer's contents before the first step.
  void preset(const Range& range);

  // Starts a step on a stream; accesses and events up to the next begin_step are this step's.
  void begin_step(int64_t step, int64_t stream);
  // Orders this step after the event's latest signal; false when there was none.
  bool wait(int64_t event);
  std::optional<Conflict> read(const Range& range);
  std::optional<Conflict> write(const Range& range);
  void signal(int64_t event);

 private:
  using Clock = std::vector<int64_t>;  // per stream: how many of its steps are known to have ended

  struct Access {
    int64_t step = -1;
    int64_t stream = 0;
    int64_t tick = 0;
  };
  // A range of the arena with one history; the map's key is its begin.
  struct Segment {
    int64_t end = 0;
    int64_t buffer = -1;
    Access write;
    std::vector<Access> reads;  // at most one a stream: the latest
  };
  using Segments = std::map<int64_t, Segment>;

  bool ordered(const Access& earlier) const;
  // Cuts segments so that one begins at `at`.
  Segments::iterator split(int64_t at);

  Segments segments_;
  std::vector<Clock> clocks_;  // by stream
  std::vector<Clock> events_;  // empty: not signalled
  Access now_;
};

}  // namespace weft
