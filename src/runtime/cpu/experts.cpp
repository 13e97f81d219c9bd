// Rows of tokens on their way to experts and back, and rows times one weight each.
#include <algorithm>
#include <cstring>

#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/simd.h"
#include "runtime/expert_rows.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 1024;

// Calls fn(token, scratch) for all tokens, each of which takes about `elements` of work.
template <class Fn>
void for_tokens(const Launch& launch, int64_t tokens, int64_t elements, const Fn& fn) {
  const int64_t step = tile_rows(elements);
  team(launch).run(ceil_div(tokens, step), [&](int64_t tile, float* scratch) {
    for (int64_t token = tile * step; token < std::min(tokens, (tile + 1) * step); ++token) {
      fn(token, scratch);
    }
  });
}

void launch_dispatch(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& rows = launch.results.at(0);
  const RowPlaces places = row_places(rows, launch.operands.at(1));
  const int64_t bytes = row_length(x) * dtype_bytes(x.dtype);
  for_tokens(launch, places.tokens, row_length(x) * places.choices, [&](int64_t token, float*) {
    const TokenRows own = places.of(token);
    for (int64_t choice = 0; choice < places.choices; ++choice) {
      const int64_t row = own.row(choice);
      if (row < 0) continue;
      std::memcpy(rows.as<char>() + row * bytes, x.as<char>() + token * bytes,
                  static_cast<size_t>(bytes));
    }
  });
}

void launch_combine(const Launch& launch) {
  const Tensor& rows = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  const RowPlaces places = row_places(rows, launch.operands.at(1));
  const int64_t length = row_length(rows);
  const auto add_rows_of = [&](int64_t token, int64_t col, int64_t n, float* scratch) {
    float* sum = place(y, token * length + col, scratch);
    std::fill_n(sum, n, 0.0f);
    const TokenRows own = places.of(token);
    for (int64_t choice = 0; choice < places.choices; ++choice) {
      const int64_t row = own.row(choice);
      if (row < 0) continue;
      add_to_row(load(rows, row * length + col, n, scratch + kBlock), n, sum);
    }
    store(y, token * length + col, n, sum);
  };
  for_tokens(launch, places.tokens, length * places.choices, [&](int64_t token, float* scratch) {
    for (int64_t col = 0; col < length; col += kBlock) {
      add_rows_of(token, col, std::min(kBlock, length - col), scratch);
    }
  });
}

// Calls fn(choice of all tokens, row or -1, bytes of an element).
template <class Fn>
void for_choices(const Launch& launch, const Tensor& rows, const Fn& fn) {
  const RowPlaces places = row_places(rows, launch.operands.at(1));
  const int64_t bytes = dtype_bytes(rows.dtype);
  for_tokens(launch, places.tokens, places.choices, [&](int64_t token, float*) {
    for (int64_t choice = 0; choice < places.choices; ++choice) {
      fn(token * places.choices + choice, places.of(token).row(choice), bytes);
    }
  });
}

void launch_dispatch_weights(const Launch& launch) {
  const char* weights = launch.operands.at(0).as<char>();
  const Tensor& rows = launch.results.at(0);
  for_choices(launch, rows, [&](int64_t choice, int64_t row, int64_t bytes) {
    if (row < 0) return;
    std::memcpy(rows.as<char>() + row * bytes, weights + choice * bytes,
                static_cast<size_t>(bytes));
  });
}

void launch_combine_weights(const Launch& launch) {
  const Tensor& rows = launch.operands.at(0);
  char* weights = launch.results.at(0).as<char>();
  for_choices(launch, rows, [&](int64_t choice, int64_t row, int64_t bytes) {
    char* to = weights + choice * bytes;
    if (row < 0) {
      std::memset(to, 0, static_cast<size_t>(bytes));
    } else {
      std::memcpy(to, rows.as<char>() + row * bytes, static_cast<size_t>(bytes));
    }
  });
}

WEFT_CLONES void scale(const float* x, float w, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * w;
}

void launch_scale_rows(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const float* w = launch.operands.at(1).as<float>();
  const Tensor& y = launch.results.at(0);
  const int64_t length = row_length(x);
  for_tokens(launch, row_count(x), length, [&](int64_t row, float* scratch) {
    for (int64_t col = 0; col < length; col += kBlock) {
      const int64_t at = row * length + col, n = std::min(kBlock, length - col);
      float* to = place(y, at, scratch + kBlock);
      scale(load(x, at, n, scratch), w[row], n, to);
      store(y, at, n, to);
    }
  });
}

void launch_scale_rows_grad(const Launch& launch) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  const float* w = launch.operands.at(2).as<float>();
  const Tensor& dx = launch.results.at(0);
  float* dw = launch.results.at(1).as<float>();
  const int64_t length = row_length(x);
  for_tokens(launch, row_count(x), length, [&](int64_t row, float* scratch) {
    float sum = 0;
    for (int64_t col = 0; col < length; col += kBlock) {
      const int64_t at = row * length + col, n = std::min(kBlock, length - col);
      const float* dy_block = load(dy, at, n, scratch);
      sum += dot_rows(dy_block, load(x, at, n, scratch + kBlock), n);
      float* to = place(dx, at, scratch + 2 * kBlock);
      scale(dy_block, w[row], n, to);
      store(dx, at, n, to);
    }
    dw[row] = sum;
  });
}

}  // namespace

std::span<const Kernel> cpu_expert_kernels() {
  static const Kernel rows[] = {
      {"dispatch", "rows", supports_cpu_dtypes, nullptr, launch_dispatch},
      {"combine", "rows", supports_cpu_dtypes, nullptr, launch_combine},
      {"dispatch_weights", "rows", supports_cpu_dtypes, nullptr, launch_dispatch_weights},
      {"combine_weights", "rows", supports_cpu_dtypes, nullptr, launch_combine_weights},
      {"scale_rows", "rows", supports_cpu_dtypes, nullptr, launch_scale_rows},
      {"scale_rows_grad", "rows", supports_cpu_dtypes, nullptr, launch_scale_rows_grad},
  };
  return rows;
}

}  // namespace weft
