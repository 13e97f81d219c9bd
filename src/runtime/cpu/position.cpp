// Rotary positions, queries scaled by position, and learned positions with their gradient.
#include <cmath>
#include <vector>

#include "plan/rope_frequencies.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

using Frequencies = std::vector<double>;

// The parts of a row that rope treats differently.
struct Rotation {
  int64_t heads, head_dim;
  int64_t kept;  // elements at the front of each head
  bool interleaved;

  explicit Rotation(const Call& call)
      : heads(call.int_attr("heads")),
        head_dim(call.int_attr("head_dim")),
        kept(head_dim - rotary_dim(call)),
        interleaved(call.bool_attr("interleaved")) {}

  int64_t half() const { return (head_dim - kept) / 2; }
};

// (y1, y2) = (x1 cos - x2 sin, x2 cos + x1 sin), for pairs of one head.
[[gnu::always_inline]] inline void rotate_halves(const float* x, const float* cosine,
                                                 const float* sine, int64_t half, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < half; ++i) {
    const float x1 = x[i];
    const float x2 = x[i + half];
    y[i] = x1 * cosine[i] - x2 * sine[i];
    y[i + half] = x2 * cosine[i] + x1 * sine[i];
  }
}

[[gnu::always_inline]] inline void rotate_neighbours(const float* x, const float* cosine,
                                                     const float* sine, int64_t half, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < half; ++i) {
    const float x1 = x[2 * i];
    const float x2 = x[2 * i + 1];
    y[2 * i] = x1 * cosine[i] - x2 * sine[i];
    y[2 * i + 1] = x2 * cosine[i] + x1 * sine[i];
  }
}

// The heads of one position.
WEFT_CLONES void rotate(const float* x, const float* cosine, const float* sine,
                        const Rotation& rotation, float* y) {
  const int64_t half = rotation.half(), kept = rotation.kept;
  for (int64_t head = 0; head < rotation.heads; ++head) {
    if (kept > 0) std::copy(x, x + kept, y);
    if (rotation.interleaved) {
      rotate_neighbours(x + kept, cosine, sine, half, y + kept);
    } else {
      rotate_halves(x + kept, cosine, sine, half, y + kept);
    }
    x += rotation.head_dim;
    y += rotation.head_dim;
  }
}

// Fills `table` with the cosines and then the sines of each position.
void fill_rope_table(const Launch& launch, int64_t positions, float* table) {
  const auto& frequencies = *static_cast<const Frequencies*>(launch.prepared.get());
  const int64_t half = static_cast<int64_t>(frequencies.size());
  const double magnitude = launch.call->double_attr("magnitude");
  const double direction = launch.call->bool_attr("inverse") ? -magnitude : magnitude;
  const int64_t step = tile_rows(16 * half);
  team(launch).run(ceil_div(positions, step), [&](int64_t tile) {
    for (int64_t t = tile * step; t < std::min(positions, (tile + 1) * step); ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) * frequencies[static_cast<size_t>(i)];
        table[2 * t * half + i] = static_cast<float>(magnitude * std::cos(angle));
        table[(2 * t + 1) * half + i] = static_cast<float>(direction * std::sin(angle));
      }
    }
  });
}

// The positions that occur are below this.
int64_t rope_length(const Call& call) {
  const int64_t length = call.int_attr("length");
  return length > 0 ? length : call.type(0).shape.at(1);
}

void launch_rope(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const int64_t positions = x.shape.at(1);
  const int64_t width = row_length(x);
  const Rotation rotation(*launch.call);
  const int64_t half = rotation.half(), rest = rotation.heads * rotation.head_dim;
  const int32_t* given = launch.operands.size() > 1 ? launch.operands[1].as<int32_t>() : nullptr;
  float* table = static_cast<float*>(launch.workspace);
  fill_rope_table(launch, rope_length(*launch.call), table);
  const int64_t rows = row_count(x.shape);
  const int64_t step = tile_rows(width);
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      const float* from = load(x, row * width, width, scratch);
      float* to = place(y, row * width, scratch + width);
      const int64_t position = given != nullptr ? given[row] : row % positions;
      const float* cosine = table + 2 * position * half;
      rotate(from, cosine, cosine + half, rotation, to);
      std::copy(from + rest, from + width, to + rest);
      store(y, row * width, width, to);
    }
  });
}

std::shared_ptr<const void> prepare_rope(const Launch& launch) {
  return std::make_shared<const Frequencies>(rope_frequencies(*launch.call));
}

int64_t rope_workspace(const Call& call) {
  return rope_length(call) * rotary_dim(call) * static_cast<int64_t>(sizeof(float));
}

WEFT_CLONES void scale_row(const float* x, float factor, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

void launch_scale_queries(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const int64_t positions = x.shape.at(1);
  const int64_t width = row_length(x);
  const int64_t scaled = launch.call->int_attr("heads") * launch.call->int_attr("head_dim");
  const int32_t* given = launch.operands.size() > 1 ? launch.operands[1].as<int32_t>() : nullptr;
  const int64_t rows = row_count(x.shape);
  const int64_t step = tile_rows(width);
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      const float* from = load(x, row * width, width, scratch);
      float* to = place(y, row * width, scratch + width);
      const int64_t position = given != nullptr ? given[row] : row % positions;
      scale_row(from, query_scale(*launch.call, position), scaled, to);
      std::copy(from + scaled, from + width, to + scaled);
      store(y, row * width, width, to);
    }
  });
}

// The position of the first row, if operand `coordinate` says which shard of the sequence it is in.
int64_t first_position(const Launch& launch, size_t coordinate, int64_t positions) {
  if (launch.operands.size() <= coordinate) return 0;
  return scalar_i32(launch.operands[coordinate]) * positions;
}

void launch_add_positions(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& w = launch.operands.at(1);
  const Tensor& y = launch.results.at(0);
  const int64_t positions = x.shape.at(1);
  const int64_t n = x.shape.at(2);
  const int64_t first = first_position(launch, 2, positions);
  const int64_t rows = row_count(x.shape);
  const int64_t step = tile_rows(n);
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      float* to = place(y, row * n, scratch + 2 * n);
      const float* position = load(w, (first + row % positions) * n, n, scratch + n);
      add_rows(load(x, row * n, n, scratch), position, n, to);
      store(y, row * n, n, to);
    }
  });
}

void launch_add_bias(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& b = launch.operands.at(1);
  const Tensor& y = launch.results.at(0);
  const int64_t n = row_length(x);
  const int64_t rows = row_count(x);
  const int64_t step = tile_rows(n);
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      float* to = place(y, row * n, scratch + 2 * n);
      add_rows(load(x, row * n, n, scratch), load(b, 0, n, scratch + n), n, to);
      store(y, row * n, n, to);
    }
  });
}

void launch_add_positions_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& dw = launch.results.at(0);
  const int64_t batch = dy.shape.at(0);
  const int64_t positions = dy.shape.at(1);
  const int64_t n = dy.shape.at(2);
  const int64_t first = first_position(launch, 1, positions);
  team(launch).run(dw.shape.at(0), [&](int64_t row, float* scratch) {
    const int64_t t = row - first;
    float* sum = place(dw, row * n, scratch);
    std::fill(sum, sum + n, 0.0f);
    for (int64_t b = 0; t >= 0 && t < positions && b < batch; ++b) {
      add_to_row(load(dy, (b * positions + t) * n, n, scratch + n), n, sum);
    }
    store(dw, row * n, n, sum);
  });
}

Decision supports_bias(const Call& call) {
  return supports_rows(call, call.type(0), 1);
}

Decision supports_position(const Call& call) {
  return supports_rows(call, call.type(0), 3);
}

}  // namespace

std::span<const Kernel> cpu_position_kernels() {
  static const Kernel rows[] = {
      {"rope", "rows", supports_position, rope_workspace, launch_rope, false, prepare_rope},
      {"scale_queries", "rows", supports_position, nullptr, launch_scale_queries},
      {"add_bias", "rows", supports_bias, nullptr, launch_add_bias},
      {"add_positions", "rows", supports_position, nullptr, launch_add_positions},
      {"add_positions_grad", "rows", supports_position, nullptr, launch_add_positions_grad},
  };
  return rows;
}

}  // namespace weft
