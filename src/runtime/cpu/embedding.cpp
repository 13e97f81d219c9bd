// Table look-up and its gradient. The gradient is split by ranges of ids: each row of the table
// belongs to one thread, which adds its contributions in token order.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kGradTiles = 64;

// The optional operand 2 says which shard of a larger table this one with `rows` rows is.
bool is_shard(const Launch& launch) {
  return launch.operands.size() > 2;
}

// The id of its first row.
int64_t first_id(const Launch& launch, int64_t rows) {
  return is_shard(launch) ? scalar_i32(launch.operands[2]) * rows : 0;
}

void launch_embedding(const Launch& launch) {
  const Tensor& w = launch.operands.at(1);
  const Tensor& y = launch.results.at(0);
  const int32_t* ids = launch.operands.at(0).as<int32_t>();
  const int64_t places = launch.operands.at(0).elements();
  const int64_t n = w.shape.at(1);
  const int64_t bytes = n * dtype_bytes(w.dtype);
  const int64_t step = tile_rows(n);
  const int64_t first = first_id(launch, w.shape[0]);
  team(launch).run(ceil_div(places, step), [&](int64_t tile) {
    for (int64_t i = tile * step; i < std::min(places, (tile + 1) * step); ++i) {
      const int64_t row = ids[i] - first;
      const bool inside = row >= 0 && row < w.shape[0];
      CHECK(inside || is_shard(launch), "id ", ids[i], " in a table of ", w.shape[0]);
      char* to = y.as<char>() + i * bytes;
      if (inside) {
        std::memcpy(to, w.as<char>() + row * bytes, static_cast<size_t>(bytes));
      } else {
        std::memset(to, 0, static_cast<size_t>(bytes));
      }
    }
  });
}

void launch_embedding_grad(const Launch& launch) {
  const int32_t* ids = launch.operands.at(0).as<int32_t>();
  const Tensor& dy = launch.operands.at(1);
  const Tensor& dw = launch.results.at(0);
  const int64_t places = launch.operands.at(0).elements();
  const int64_t n = row_length(dy.shape);
  const int64_t rows = dw.shape.at(0);
  const int64_t step = ceil_div(rows, kGradTiles);
  const int64_t skipped = first_id(launch, rows);
  float* sums = place(dw, 0, static_cast<float*>(launch.workspace));
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    const int64_t first = tile * step;
    const int64_t end = std::min(rows, first + step);
    std::fill(sums + first * n, sums + end * n, 0.0f);
    for (int64_t i = 0; i < places; ++i) {
      const int64_t row = ids[i] - skipped;
      if (row < first || row >= end) continue;
      add_to_row(load(dy, i * n, n, scratch), n, sums + row * n);
    }
    store(dw, first * n, (end - first) * n, sums + first * n);
  });
}

// As above, but the rows of one id are summed separately, in order, and then added to the
// accumulator: all occurrences of an id are visited when its first one is found. Rows of absent ids
// get a zero added, as from a full gradient tensor: it turns -0 into 0.
void launch_embedding_grad_add(const Launch& launch) {
  const Tensor& dy = launch.operands.at(2);
  const int32_t* ids = launch.operands.at(1).as<int32_t>();
  const int64_t places = launch.operands.at(1).elements();
  const int64_t n = row_length(dy.shape);
  float* acc = launch.results.at(0).as<float>();
  const int64_t rows = launch.results.at(0).shape.at(0);
  const int64_t step = ceil_div(rows, kGradTiles);
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    const int64_t first = tile * step;
    const int64_t end = std::min(rows, first + step);
    float* sum = scratch;
    std::fill_n(sum, n, 0.0f);
    for (int64_t row = first; row < end; ++row) add_to_row(sum, n, acc + row * n);
    for (int64_t i = 0; i < places; ++i) {
      const int32_t id = ids[i];
      if (id < first || id >= end || std::find(ids, ids + i, id) != ids + i) continue;
      std::fill_n(sum, n, 0.0f);
      for (int64_t j = i; j < places; ++j) {
        if (ids[j] == id) add_to_row(load(dy, j * n, n, scratch + n), n, sum);
      }
      add_to_row(sum, n, acc + id * n);
    }
  });
}

Decision supports_embedding_grad(const Call& call) {
  return supports_rows(call, call.type(1), 1);
}

Decision supports_embedding_grad_add(const Call& call) {
  return supports_rows(call, call.type(2), 2);
}

int64_t embedding_grad_workspace(const Call& call) {
  const TensorType& dw = call.results.at(0);
  return dw.dtype == DType::F32 ? 0 : dw.elements() * static_cast<int64_t>(sizeof(float));
}

}  // namespace

std::span<const Kernel> cpu_embedding_kernels() {
  static const Kernel rows[] = {
      {"embedding", "rows", supports_cpu_dtypes, nullptr, launch_embedding},
      {"embedding_grad", "id_ranges", supports_embedding_grad, embedding_grad_workspace,
       launch_embedding_grad},
      {"embedding_grad_add", "id_ranges", supports_embedding_grad_add, nullptr,
       launch_embedding_grad_add},
  };
  return rows;
}

}  // namespace weft
