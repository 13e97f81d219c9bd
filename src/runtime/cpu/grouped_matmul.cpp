// Matmuls of the rows of many experts. A unit is an expert with all columns of its right factor, or
// some of them if they are many. As many units as fit the workspace are packed at a time and share
// the threads. Sums are those of gemm.h, so neither units nor tiles change bits.
#include <algorithm>
#include <array>
#include <bit>

#include "base/tree_level.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/gemm_tiles.h"
#include "runtime/cpu/kernels.h"
#include "runtime/expert_rows.h"

namespace weft {

namespace {

constexpr int64_t kScratchLeft = ThreadTeam::kScratchFloats - kLeftFloats;
constexpr int64_t kFewTiles = 32;  // too few to balance the load

// Floats per column of a packed factor with `terms` terms, a multiple of 16.
int64_t column_floats(int64_t terms) {
  return ceil_div(terms, 16) * 16;
}

struct Unit {
  int64_t expert = 0, col = 0, cols = 0;
  float* packed = nullptr;
  int64_t first_part = 0, first_tile = 0;  // among those of the pass

  // The factor that is packed behind `before` floats per column.
  PackedBlocks packed_behind(int64_t before) const {
    return {packed + (cols + kGemmPadding) * before, (cols + kGemmPadding) * kGemmDepth};
  }
};

// The units that are packed together.
class Pass {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == static_cast<int64_t>(units_.size()); }
  int64_t parts() const { return parts_; }
  int64_t tiles() const { return tiles_; }
  int64_t tile_cols() const { return tile_cols_; }

  void add(const Unit& unit, int64_t parts) {
    Unit& added = units_[static_cast<size_t>(count_++)] = unit;
    added.first_part = parts_;
    parts_ += parts;
  }

  // Divides the result into tiles of at most `most_cols` columns; there are row_tiles(expert) down.
  template <class RowTiles>
  void make_tiles(int64_t most_cols, const RowTiles& row_tiles) {
    tile_cols_ = most_cols;
    count_tiles(row_tiles);
    if (tiles_ >= kFewTiles || tile_cols_ < 2 * kPackCols) return;
    tile_cols_ = tile_cols_ / (2 * kPackCols) * kPackCols;
    count_tiles(row_tiles);
  }

  const Unit& unit_of_part(int64_t part) const { return last_from(part, &Unit::first_part); }
  const Unit& unit_of_tile(int64_t tile) const { return last_from(tile, &Unit::first_tile); }

 private:
  template <class RowTiles>
  void count_tiles(const RowTiles& row_tiles) {
    tiles_ = 0;
    for (int64_t i = 0; i < count_; ++i) {
      Unit& unit = units_[static_cast<size_t>(i)];
      unit.first_tile = tiles_;
      tiles_ += row_tiles(unit.expert) * ceil_div(unit.cols, tile_cols_);
    }
  }

  // The last unit that starts at or before `number`: those without parts or tiles come before it.
  const Unit& last_from(int64_t number, int64_t Unit::*first) const {
    const auto after =
        std::upper_bound(units_.begin(), units_.begin() + count_, number,
                         [&](int64_t value, const Unit& unit) { return value < unit.*first; });
    return *(after - 1);
  }

  std::array<Unit, 64> units_;
  int64_t count_ = 0, parts_ = 0, tiles_ = 0, tile_cols_ = kTileCols;
};

// Columns of a unit with `per_column` floats per column in a workspace of `floats`.
int64_t unit_cols(int64_t cols, int64_t per_column, int64_t floats) {
  if (per_column == 0) return cols;
  const int64_t fitting = floats / per_column - kGemmPadding;
  if (cols <= fitting) return cols;
  const int64_t step = fitting < kTileCols ? kPackCols : kTileCols;
  return std::min(std::max(fitting / step * step, kPackCols), cols);
}

// Bytes of workspace for units with up to `per_column` floats per column, and `all` of all experts.
int64_t units_workspace(int64_t cols, int64_t per_column, int64_t all) {
  const int64_t least = (std::min(cols, kPackCols) + kGemmPadding) * per_column;
  const int64_t floats = std::max(std::min((cols + kGemmPadding) * all, kChunkFloats), least);
  return floats * static_cast<int64_t>(sizeof(float));
}

// Where a tile of a unit begins, and its size.
struct TilePlace {
  int64_t row_tile = 0, col = 0, cols = 0;
};

// Packs and multiplies the units of all experts, of which `job` says how.
template <class Job>
void run_units(const Launch& launch, const Job& job) {
  const int64_t floats = launch.workspace_bytes / static_cast<int64_t>(sizeof(float));
  const auto row_tiles = [&](int64_t expert) { return job.row_tiles(expert); };
  int64_t expert = 0, col = 0;
  while (expert < job.experts()) {
    Pass pass;
    auto* packed = static_cast<float*>(launch.workspace);
    int64_t left = floats;
    while (expert < job.experts() && !pass.full()) {
      const int64_t per_column = job.column_floats(expert);
      const int64_t fitting = unit_cols(job.cols(), per_column, floats);
      const int64_t cols = std::min(fitting, job.cols() - col);
      const int64_t needed = (cols + kGemmPadding) * per_column;
      if (needed > left) break;
      if (job.row_tiles(expert) > 0) {
        pass.add({expert, col, cols, packed}, job.parts(expert, cols));
        packed += needed;
        left -= needed;
      }
      col += cols;
      if (col < job.cols()) continue;
      col = 0;
      ++expert;
    }
    pass.make_tiles(job.most_tile_cols(), row_tiles);
    team(launch).run(pass.parts(), [&](int64_t part) {
      const Unit& unit = pass.unit_of_part(part);
      job.pack(unit, part - unit.first_part);
    });
    team(launch).run(pass.tiles(), [&](int64_t tile, float* scratch) {
      const Unit& unit = pass.unit_of_tile(tile);
      const int64_t across = ceil_div(unit.cols, pass.tile_cols());
      const int64_t at = (tile - unit.first_tile) % across * pass.tile_cols();
      job.multiply(
          unit, {(tile - unit.first_tile) / across, at, std::min(pass.tile_cols(), unit.cols - at)},
          scratch);
    });
  }
}

// y = rows w[expert], or its transpose.
class RowsJob {
 public:
  explicit RowsJob(const Launch& launch)
      : y_(launch.results.at(0)),
        rows_(expert_rows(launch.operands.at(0), launch.operands.at(1))),
        a_(matrix(launch.operands.at(0).data, y_.dtype, row_length(launch.operands.at(0)))),
        w_(launch.operands.at(2)),
        tb_(launch.call->bool_attr("tb")),
        terms_(a_.row_stride),
        variant_(gemm_variant(y_.dtype, y_.dtype)) {}

  int64_t experts() const { return rows_.experts(); }
  int64_t cols() const { return row_length(y_); }
  int64_t most_tile_cols() const { return kTileCols; }
  int64_t column_floats(int64_t) const { return weft::column_floats(terms_); }
  int64_t parts(int64_t, int64_t cols) const { return pack_parts(terms_, cols); }

  int64_t row_tiles(int64_t expert) const {
    int64_t tiles = 0;
    for (int64_t source = 0; source < rows_.sources; ++source) {
      tiles += ceil_div(rows_.of(source, expert).rows, kTileRows);
    }
    return tiles;
  }

  void pack(const Unit& unit, int64_t part) const {
    const auto own =
        static_cast<char*>(w_.data) + unit.expert * terms_ * cols() * dtype_bytes(w_.dtype);
    const MatrixView w =
        tb_ ? transposed(matrix(own, w_.dtype, terms_)) : matrix(own, w_.dtype, cols());
    pack_part(variant_, from(w, 0, unit.col), terms_, unit.cols, unit.packed_behind(0), part);
  }

  void multiply(const Unit& unit, const TilePlace& tile, float* scratch) const {
    const RowRange rows = tile_rows(unit.expert, tile.row_tile);
    const int64_t first = rows.first * cols() + unit.col + tile.col;
    const bool in_result = y_.dtype == DType::F32;
    float* c = place(y_, first, scratch + kLeftFloats);
    const int64_t stride = in_result ? cols() : kTileCols;
    multiply_tile(variant_,
                  {.a = from(a_, rows.first, 0),
                   .shape = {rows.rows, tile.cols, terms_},
                   .b = unit.packed_behind(0),
                   .col = tile.col,
                   .c = c,
                   .c_stride = stride},
                  scratch);
    for (int64_t r = 0; r < rows.rows; ++r) {
      store(y_, first + r * cols(), tile.cols, c + r * stride);
    }
  }

 private:
  // The rows of a tile, all of one source.
  RowRange tile_rows(int64_t expert, int64_t tile) const {
    for (int64_t source = 0;; ++source) {
      const RowRange all = rows_.of(source, expert);
      const int64_t tiles = ceil_div(all.rows, kTileRows);
      if (tile < tiles) {
        const int64_t skipped = tile * kTileRows;
        return {all.first + skipped, std::min(kTileRows, all.rows - skipped)};
      }
      tile -= tiles;
    }
  }

  const Tensor& y_;
  ExpertRows rows_;
  MatrixView a_;
  const Tensor& w_;
  bool tb_;
  int64_t terms_;
  const GemmVariant& variant_;
};

void launch_grouped_matmul(const Launch& launch) {
  run_units(launch, RowsJob(launch));
}

int64_t grouped_matmul_workspace(const Call& call) {
  const int64_t per_column = column_floats(row_length(call.type("rows")));
  return units_workspace(row_length(call.results.at(0)), per_column,
                         call.type("w").shape.at(0) * per_column);
}

// dw[expert] = a^T b over the rows of the expert. The terms are rows, a factor per source.
class WeightsJob {
 public:
  explicit WeightsJob(const Launch& launch)
      : a_(launch.operands.at(0)),
        b_(launch.operands.at(1)),
        dw_(launch.results.at(0)),
        rows_(expert_rows(a_, launch.operands.at(2))),
        variant_(gemm_variant(a_.dtype, b_.dtype)) {
    // Sums of sources that wait for others take a tile each, and one that is rounded another.
    const int64_t waiting = std::bit_width(static_cast<uint64_t>(rows_.sources - 1));
    const int64_t tile = kScratchLeft / std::max<int64_t>(waiting + (in_result() ? 0 : 1), 1);
    most_tile_cols_ = std::clamp(tile / kTileRows / kPackCols * kPackCols, kPackCols, kTileCols);
  }

  int64_t experts() const { return rows_.experts(); }
  int64_t cols() const { return row_length(b_); }
  int64_t most_tile_cols() const { return most_tile_cols_; }
  int64_t row_tiles(int64_t) const { return ceil_div(row_length(a_), kTileRows); }

  int64_t column_floats(int64_t expert) const { return floats_before(rows_.sources, expert); }

  int64_t parts(int64_t expert, int64_t cols) const {
    int64_t parts = 0;
    for (int64_t source = 0; source < rows_.sources; ++source) {
      parts += pack_parts(rows_.of(source, expert).rows, cols);
    }
    return parts;
  }

  void pack(const Unit& unit, int64_t part) const {
    for (int64_t source = 0;; ++source) {
      const RowRange rows = rows_.of(source, unit.expert);
      const int64_t parts = pack_parts(rows.rows, unit.cols);
      if (part < parts) {
        const MatrixView b = matrix(b_.data, b_.dtype, cols());
        return pack_part(variant_, from(b, rows.first, unit.col), rows.rows, unit.cols,
                         packed(unit, source), part);
      }
      part -= parts;
    }
  }

  void multiply(const Unit& unit, const TilePlace& tile, float* scratch) const {
    const int64_t row = tile.row_tile * kTileRows;
    const int64_t down = std::min(kTileRows, row_length(a_) - row);
    const int64_t first = (unit.expert * row_length(a_) + row) * cols() + unit.col + tile.col;
    float* buffer = scratch + kLeftFloats;
    float* sum = place(dw_, first, buffer);
    const int64_t stride = in_result() ? cols() : most_tile_cols_;
    if (!in_result()) buffer += kTileRows * most_tile_cols_;
    const Tile of{unit, tile, row, down, scratch};
    add_sources(of, 0, rows_.sources, {sum, stride}, buffer);
    for (int64_t r = 0; r < down; ++r) {
      store(dw_, first + r * cols(), tile.cols, sum + r * stride);
    }
  }

 private:
  struct Tile {
    const Unit& unit;
    const TilePlace& place;
    int64_t row, rows;
    float* scratch;
  };
  struct Sum {
    float* data;
    int64_t stride;
  };

  bool in_result() const { return dw_.dtype == DType::F32; }

  int64_t floats_before(int64_t source, int64_t expert) const {
    int64_t floats = 0;
    for (int64_t s = 0; s < source; ++s) floats += weft::column_floats(rows_.of(s, expert).rows);
    return floats;
  }

  PackedBlocks packed(const Unit& unit, int64_t source) const {
    return unit.packed_behind(floats_before(source, unit.expert));
  }

  // The sum over `count` sources, as a balanced binary tree; `buffer` has a tile for each level.
  void add_sources(const Tile& tile, int64_t source, int64_t count, Sum sum, float* buffer) const {
    if (count == 1) return multiply_source(tile, source, sum);
    const int64_t half = tree_split(count);
    add_sources(tile, source, half, sum, buffer);
    const Sum rest{buffer, most_tile_cols_};
    add_sources(tile, source + half, count - half, rest, buffer + kTileRows * most_tile_cols_);
    for (int64_t r = 0; r < tile.rows; ++r) {
      add_to_row(rest.data + r * rest.stride, tile.place.cols, sum.data + r * sum.stride);
    }
  }

  // A source without rows gives zeros.
  void multiply_source(const Tile& tile, int64_t source, Sum sum) const {
    const RowRange rows = rows_.of(source, tile.unit.expert);
    const MatrixView a = matrix(a_.data, a_.dtype, row_length(a_));
    multiply_tile(variant_,
                  {.a = from(transposed(a), tile.row, rows.first),
                   .shape = {tile.rows, tile.place.cols, rows.rows},
                   .b = packed(tile.unit, source),
                   .col = tile.place.col,
                   .c = sum.data,
                   .c_stride = sum.stride},
                  tile.scratch);
  }

  const Tensor& a_;
  const Tensor& b_;
  const Tensor& dw_;
  ExpertRows rows_;
  const GemmVariant& variant_;
  int64_t most_tile_cols_ = kTileCols;
};

void launch_grouped_matmul_grad_w(const Launch& launch) {
  run_units(launch, WeightsJob(launch));
}

int64_t grad_w_workspace(const Call& call) {
  const Shape& a = call.type("a").shape;
  const int64_t experts = call.results.at(0).shape.at(0);
  // The rows of every source and expert are rounded up.
  const int64_t largest = a[0] * column_floats(a[2]);
  const int64_t all = a[0] * (a[1] * a[2] + experts * column_floats(1));
  return units_workspace(row_length(call.type("b")), largest, all);
}

}  // namespace

std::span<const Kernel> cpu_grouped_matmul_kernels() {
  static const Kernel rows[] = {
      {"grouped_matmul", "tiled", supports_cpu_dtypes, grouped_matmul_workspace,
       launch_grouped_matmul},
      {"grouped_matmul_grad_w", "tiled", supports_cpu_dtypes, grad_w_workspace,
       launch_grouped_matmul_grad_w},
  };
  return rows;
}

}  // namespace weft
