// Computes offsets by rounding every size up to full blocks.
#include "graph/flat.h"

#include "base/error.h"

namespace weft {

int64_t flat_size(std::span<const Shape> shapes) {
  int64_t size = 0;
  for (const Shape& shape : shapes) {
    USER_CHECK(!__builtin_add_overflow(size, flat_padded(count(shape)), &size), "a flat buffer of ",
               shapes.size(), " tensors has too many elements to count");
  }
  return size;
}

std::vector<int64_t> flat_offsets(std::span<const Shape> shapes) {
  std::vector<int64_t> offsets;
  int64_t next = 0;
  for (const Shape& shape : shapes) {
    offsets.push_back(next);
    next += flat_padded(count(shape));
  }
  return offsets;
}

std::string bucket_name(std::span<const std::string> members) {
  CHECK(!members.empty(), "a bucket has members");
  return members.size() == 1 ? members[0] : cat(members[0], "+", members.size() - 1);
}

}  // namespace weft
