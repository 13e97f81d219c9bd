#include "runtime/cpu/partials.h"

#include <algorithm>

#include "runtime/cpu/elements.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kChunkRows = 64;
constexpr int64_t kCombineCols = 512;

WEFT_CLONES void add_line(const float* line, int64_t n, float* sum) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) sum[i] += line[i];
}

}  // namespace

int64_t Partials::bytes(int64_t rows, int64_t length) {
  return ceil_div(rows, kChunkRows) * length * static_cast<int64_t>(sizeof(float));
}

Partials::Partials(int64_t rows, int64_t length, void* workspace)
    : rows_(rows), length_(length), lines_(static_cast<float*>(workspace)) {}

int64_t Partials::chunks() const {
  return ceil_div(rows_, kChunkRows);
}
int64_t Partials::first_row(int64_t chunk) const {
  return chunk * kChunkRows;
}
int64_t Partials::end_row(int64_t chunk) const {
  return std::min(rows_, (chunk + 1) * kChunkRows);
}

float* Partials::start(int64_t chunk) const {
  float* line = lines_ + chunk * length_;
  std::fill(line, line + length_, 0.0f);
  return line;
}

void Partials::combine(ThreadTeam& team, const Tensor& result) const {
  team.run(ceil_div(length_, kCombineCols), [&](int64_t tile, float* scratch) {
    const int64_t col = tile * kCombineCols;
    const int64_t cols = std::min(kCombineCols, length_ - col);
    float* sum = place(result, col, scratch);
    std::fill(sum, sum + cols, 0.0f);
    for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
      add_line(lines_ + chunk * length_ + col, cols, sum);
    }
    store(result, col, cols, sum);
  });
}

}  // namespace weft
