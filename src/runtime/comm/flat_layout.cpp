#include "runtime/comm/flat_layout.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

constexpr int64_t kSliceUnit = 64;  // elements; slices are aligned to cache lines

}  // namespace

std::vector<MemberChunk> member_chunks(std::span<const Tensor> members, int64_t begin,
                                       int64_t end) {
  std::vector<MemberChunk> chunks;
  int64_t start = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const int64_t elements = members[i].elements();
    const int64_t low = std::max(start, begin), high = std::min(start + elements, end);
    if (low < high) chunks.push_back({i, low - start, low - begin, high - low});
    start += flat_padded(elements);
  }
  return chunks;
}

std::vector<Gap> gaps_of(std::span<const MemberChunk> chunks, int64_t shard_size) {
  std::vector<Gap> gaps;
  int64_t done = 0;
  for (const MemberChunk& chunk : chunks) {
    if (chunk.position > done) gaps.push_back({done, chunk.position});
    done = chunk.position + chunk.elements;
  }
  if (shard_size > done) gaps.push_back({done, shard_size});
  return gaps;
}

int64_t flat_end(std::span<const Tensor> members) {
  int64_t start = 0, end = 0;
  for (const Tensor& member : members) {
    end = start + member.elements();
    start += flat_padded(member.elements());
  }
  return end;
}

void check_members(std::span<const Tensor> members, const Tensor& shard, int64_t size) {
  CHECK(!members.empty(), "a flat tensor without members");
  for (const Tensor& member : members) {
    CHECK(member.dtype == members[0].dtype, "members of one flat tensor have different types");
  }
  CHECK(flat_end(members) <= shard.elements() * size, "members of ", flat_end(members),
        " elements, ", size, " shards of ", shard.elements());
}

void check_contiguous(std::span<const Tensor> members) {
  int64_t start = 0;
  for (const Tensor& member : members) {
    CHECK(member.data == shifted(members[0].data, member.dtype, start),
          "members of a collective are not laid out as in a flat tensor");
    start += flat_padded(member.elements());
  }
}

void* shifted(const void* data, DType dtype, int64_t elements) {
  return static_cast<char*>(const_cast<void*>(data)) + elements * dtype_bytes(dtype);
}

int64_t slice_elements(int64_t elements, int64_t ranks) {
  const int64_t unit = kSliceUnit * ranks;
  return (elements + unit - 1) / unit * kSliceUnit;
}

int64_t scatter_workspace(DType dtype, int64_t shard_size, int64_t ranks) {
  return (ranks - 1) * shard_size * dtype_bytes(dtype);
}

int64_t sum_workspace(DType dtype, int64_t elements, int64_t ranks) {
  if (ranks == 1) return 0;
  if (elements * dtype_bytes(dtype) <= kSmallSumBytes) {
    return ranks * elements * dtype_bytes(dtype);
  }
  return scatter_workspace(dtype, slice_elements(elements, ranks), ranks);
}

}  // namespace weft
