// Greedy by size in each space: the largest buffer first, each at the lowest offset that is free
// during its entire lifetime. Large buffers set the peak; small ones fill the gaps between them.
#include "plan/memory.h"

#include <algorithm>

namespace weft {
namespace {

struct Placed {
  int64_t offset = 0;
  int64_t end = 0;
  int64_t first = 0;
  int64_t last = 0;
};

// The lowest offset >= base with `size` bytes free throughout the lifetime of `buffer`.
int64_t lowest_offset(const std::vector<Placed>& placed, const Buffer& buffer, int64_t size,
                      int64_t base) {
  int64_t offset = base;
  for (const Placed& other : placed) {  // by offset
    if (other.last < buffer.first || buffer.last < other.first) continue;
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
  std::vector<Placed> placed;
  placed.reserve(buffers.size());
  int64_t top = base;
  for (Buffer* buffer : buffers) {
    const int64_t size = align_up(buffer->bytes);
    buffer->offset = lowest_offset(placed, *buffer, size, base);
    const Placed entry{buffer->offset, buffer->offset + size, buffer->first, buffer->last};
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), entry,
                         [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    placed.insert(at, entry);
    top = std::max(top, entry.end);
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
