// Greedy by size in each space: the largest buffer first, each at the lowest offset that is free
// during its entire lifetime. Large buffers set the peak; small ones fill the gaps between them.
#include "plan/memory.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

namespace weft {
namespace {

struct Placed {
  int64_t offset = 0;
  int64_t end = 0;
  int64_t first = 0;
  int64_t last = 0;
};

// The buffers placed so far, found by when they are alive: most live for a few steps only.
class PlacedBuffers {
 public:
  explicit PlacedBuffers(int64_t steps) : by_time_(static_cast<size_t>(steps / kSpan + 1)) {}

  void add(const Placed& buffer) {
    all_.push_back(buffer);
    for (std::vector<Placed>& span : spans(buffer.first, buffer.last)) span.push_back(buffer);
  }

  // Those that are alive together with `buffer`, by offset; some may occur twice. Valid until the
  // next call.
  const std::vector<Placed>& alive_with(const Buffer& buffer) {
    alive_.clear();
    const auto take = [&](const std::vector<Placed>& from) {
      std::copy_if(from.begin(), from.end(), std::back_inserter(alive_), [&](const Placed& other) {
        return other.last >= buffer.first && buffer.last >= other.first;
      });
    };
    size_t entries = 0;
    for (const std::vector<Placed>& span : spans(buffer.first, buffer.last)) entries += span.size();
    if (entries < all_.size()) {
      for (const std::vector<Placed>& span : spans(buffer.first, buffer.last)) take(span);
    } else {
      take(all_);
    }
    std::sort(alive_.begin(), alive_.end(),
              [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    return alive_;
  }

 private:
  static constexpr int64_t kSpan = 32;  // steps

  std::span<std::vector<Placed>> spans(int64_t first, int64_t last) {
    const auto begin = static_cast<size_t>(first / kSpan);
    return std::span(by_time_).subspan(begin, static_cast<size_t>(last / kSpan) - begin + 1);
  }

  std::vector<Placed> all_;
  std::vector<std::vector<Placed>> by_time_;  // by span of steps: what is alive in it
  std::vector<Placed> alive_;
};

// The lowest offset >= base with `size` bytes free between the buffers, which are in order.
int64_t lowest_offset(const std::vector<Placed>& placed, int64_t size, int64_t base) {
  int64_t offset = base;
  for (const Placed& other : placed) {
    if (other.offset - offset >= size) break;
    offset = std::max(offset, other.end);
  }
  return offset;
}

// Places the transient buffers of one program at offsets from `base`; returns the highest end.
int64_t place_program(std::vector<Buffer*> buffers, int64_t base) {
  std::stable_sort(buffers.begin(), buffers.end(), [](const Buffer* a, const Buffer* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->first < b->first;
  });
  int64_t steps = 0;
  for (const Buffer* buffer : buffers) steps = std::max(steps, buffer->last + 1);
  PlacedBuffers placed(steps);
  int64_t top = base;
  for (Buffer* buffer : buffers) {
    const int64_t size = align_up(buffer->bytes);
    buffer->offset = lowest_offset(placed.alive_with(*buffer), size, base);
    placed.add({buffer->offset, buffer->offset + size, buffer->first, buffer->last});
    top = std::max(top, buffer->offset + size);
  }
  return top;
}

}  // namespace

void assign_offsets(Plan& plan) {
  int64_t persistent = 0;
  using ByProgram = std::array<std::vector<Buffer*>, kPrograms>;
  ByProgram transient;
  std::vector<ByProgram> shared(plan.shared.size());
  for (Buffer& buffer : plan.buffers) {
    if (buffer.persistent) {
      buffer.offset = persistent;
      persistent += align_up(buffer.bytes);
    } else {
      ByProgram& space =
          buffer.shared < 0 ? transient : shared.at(static_cast<size_t>(buffer.shared));
      space[static_cast<size_t>(buffer.program)].push_back(&buffer);
    }
  }
  plan.persistent_bytes = persistent;
  plan.arena_bytes = persistent;
  for (std::vector<Buffer*>& buffers : transient) {
    plan.arena_bytes = std::max(plan.arena_bytes, place_program(std::move(buffers), persistent));
  }
  for (size_t i = 0; i < shared.size(); ++i) {
    int64_t& bytes = plan.shared[i].bytes;
    for (std::vector<Buffer*>& buffers : shared[i]) {
      bytes = std::max(bytes, place_program(std::move(buffers), 0));
    }
  }
}

}  // namespace weft
