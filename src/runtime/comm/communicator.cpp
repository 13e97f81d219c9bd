#include "runtime/comm/communicator.h"

namespace weft {
int64_t RankInfo::coordinate(std::string_view axis) const {
  return mesh.coordinate(rank, axis);
}

std::vector<int64_t> RankInfo::group(std::string_view axis) const {
  std::vector<int64_t> ranks = {rank};
  for (const std::string_view one : joint_axes(axis)) {
    const int64_t stride = mesh.stride(one);
    std::vector<int64_t> longer;
    for (const int64_t outer : ranks) {
      const int64_t first = outer - coordinate(one) * stride;
      for (int64_t i = 0; i < mesh.axis_size(one); ++i) longer.push_back(first + i * stride);
    }
    ranks = std::move(longer);
  }
  return ranks;
}

}  // namespace weft
