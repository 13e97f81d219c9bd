// Matmuls, with or without an accumulator, and the sum over rows. The right factor is packed a
// chunk of columns and depth at a time (gemm_tiles.h). All sizes depend on the shapes alone.
#include <utility>

#include "graph/op.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/gemm_tiles.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/partials.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kChunkDepth = 8 * kGemmDepth;  // of the right factor
// Size of a chunk with all columns, and its minimum depth.
constexpr int64_t kWideFloats = 1 << 20;
constexpr int64_t kWideDepth = 2 * kGemmDepth;
static_assert(kLeftFloats + kTileFloats + kTileCols <= ThreadTeam::kScratchFloats);

// The matmul in normal form: rows x depth times depth x cols.
struct MatmulOperands {
  MatrixView a, b;
  GemmShape shape;
};

// Whether the matmul is added to an accumulator, operand 0, which the result overwrites.
bool is_added(const Call& call) {
  return call.op->name() != "matmul";
}

// Index of the left factor among the operands; the right one follows.
size_t left_factor(const Call& call) {
  return is_added(call) ? 1 : 0;
}

GemmShape shape_of(const Call& call) {
  const Shape& a = call.type(left_factor(call)).shape;
  const Shape& b = call.type(left_factor(call) + 1).shape;
  if (call.bool_attr("ta")) return {row_length(a), row_length(b), row_count(a)};
  if (call.bool_attr("tb")) return {row_count(a), b.at(0), row_length(a)};
  return {row_count(a), row_length(b), row_length(a)};
}

MatmulOperands operands_of(const Launch& launch) {
  const size_t left = left_factor(*launch.call);
  const Tensor& a = launch.operands.at(left);
  const Tensor& b = launch.operands.at(left + 1);
  MatmulOperands operands{matrix(a.data, a.dtype, row_length(a.shape)),
                          matrix(b.data, b.dtype, row_length(b.shape)), shape_of(*launch.call)};
  if (launch.call->bool_attr("ta")) operands.a = transposed(operands.a);
  if (launch.call->bool_attr("tb")) operands.b = transposed(operands.b);
  return operands;
}

// How a matmul is blocked.
struct Blocking {
  int64_t chunk_cols, chunk_depth, tile_rows, tile_cols;
  bool added;      // to an accumulator
  bool in_result;  // terms are summed in place in the result; else in a buffer, so that it is
                   // rounded once
  bool partial;    // sums over several chunks of depth are combined in the workspace

  // The left factor is read again for each chunk of columns, which costs more the further apart its
  // terms lie. So weight gradients have all columns in a chunk and as much depth as fits.
  Blocking(const Call& call, const GemmShape& shape) {
    const int64_t wide = kWideFloats / std::max<int64_t>(shape.cols, 1) / kGemmDepth * kGemmDepth;
    chunk_depth =
        std::min(call.bool_attr("ta") ? std::clamp(wide, kWideDepth, kChunkDepth) : kChunkDepth,
                 shape.depth);
    const int64_t fitting = kChunkFloats / std::max<int64_t>(chunk_depth, 1);
    chunk_cols = std::min(std::max(fitting / kTileCols, int64_t{1}) * kTileCols, shape.cols);
    tile_rows = kTileRows;
    tile_cols = kTileCols;
    const auto tiles = [&] {
      return ceil_div(shape.rows, tile_rows) * ceil_div(chunk_cols, tile_cols);
    };
    // Enough tiles to balance the load; wide tiles pack less.
    if (tiles() < 32) tile_rows = kTileRows / 2;
    if (tiles() < 32) tile_cols = kTileCols / 2;
    added = is_added(call);
    in_result = call.results.at(0).dtype == DType::F32 && !added;
    partial = !in_result && shape.depth > chunk_depth;
  }

  // Floats from one block of the depth to the next in the packed chunk.
  int64_t packed_block() const {
    return (chunk_cols + kGemmPadding) * largest_packed_depth(std::min(kGemmDepth, chunk_depth));
  }
  int64_t packed_floats() const { return ceil_div(chunk_depth, kGemmDepth) * packed_block(); }
};

// One chunk: columns from `col` on, terms from `depth` on.
struct Chunk {
  int64_t col, cols, depth, terms;
};

class Multiplication {
 public:
  explicit Multiplication(const Launch& launch)
      : launch_(launch),
        operands_(operands_of(launch)),
        blocking_(*launch.call, operands_.shape),
        variant_(gemm_variant(operands_.a.dtype, operands_.b.dtype)),
        packed_(static_cast<float*>(launch.workspace)),
        partial_(packed_ + blocking_.packed_floats()) {}

  void run() const {
    const GemmShape& shape = operands_.shape;
    for (int64_t col = 0; col < shape.cols; col += blocking_.chunk_cols) {
      const int64_t cols = std::min(blocking_.chunk_cols, shape.cols - col);
      int64_t depth = 0;
      do {
        const Chunk chunk{col, cols, depth, std::min(blocking_.chunk_depth, shape.depth - depth)};
        pack(chunk);
        multiply(chunk);
        depth += blocking_.chunk_depth;
      } while (depth < shape.depth);
    }
  }

 private:
  PackedBlocks packed_blocks() const { return {packed_, blocking_.packed_block()}; }

  void pack(const Chunk& chunk) const {
    const MatrixView b = from(operands_.b, chunk.depth, chunk.col);
    team(launch_).run(pack_parts(chunk.terms, chunk.cols), [&](int64_t part) {
      pack_part(variant_, b, chunk.terms, chunk.cols, packed_blocks(), part);
    });
  }

  void multiply(const Chunk& chunk) const {
    const int64_t down = ceil_div(operands_.shape.rows, blocking_.tile_rows);
    team(launch_).run(down * tiles_across(chunk),
                      [&](int64_t tile, float* scratch) { multiply(chunk, tile, scratch); });
  }

  int64_t tiles_across(const Chunk& chunk) const {
    return ceil_div(chunk.cols, blocking_.tile_cols);
  }
  int64_t first_row(const Chunk& chunk, int64_t tile) const {
    return tile / tiles_across(chunk) * blocking_.tile_rows;
  }

  void multiply(const Chunk& chunk, int64_t tile, float* scratch) const {
    const int64_t row = first_row(chunk, tile);
    const int64_t col = tile % tiles_across(chunk) * blocking_.tile_cols;
    const Tensor& y = launch_.results[0];
    const GemmShape& full = operands_.shape;
    const GemmShape shape{std::min(blocking_.tile_rows, full.rows - row),
                          std::min(blocking_.tile_cols, chunk.cols - col), chunk.terms};
    const int64_t first = row * full.cols + chunk.col + col;
    float* buffer = scratch + kLeftFloats;
    auto [c, stride] = blocking_.in_result ? std::pair(y.as<float>() + first, full.cols)
                       : blocking_.partial
                           ? std::pair(partial_ + row * chunk.cols + col, chunk.cols)
                           : std::pair(buffer, kTileCols);
    multiply_tile(variant_,
                  {.a = from(operands_.a, row, chunk.depth),
                   .shape = shape,
                   .b = packed_blocks(),
                   .col = col,
                   .c = c,
                   .c_stride = stride,
                   .mode = chunk.depth == 0 ? GemmMode::Store : GemmMode::Add,
                   .next = after(chunk, tile)},
                  scratch);
    if (chunk.depth + chunk.terms < full.depth) return;
    const float* bias =
        has_bias() ? load(launch_.operands[2], chunk.col + col, shape.cols, buffer + kTileFloats)
                   : nullptr;
    for (int64_t r = 0; r < shape.rows; ++r) {
      float* c_row = c + r * stride;
      if (bias != nullptr) add_to_row(bias, shape.cols, c_row);
      finish_row(first + r * full.cols, shape.cols, c_row);
    }
  }

  // What a thread reads of the left factor after a tile if the tiles are assigned in turn.
  Ahead after(const Chunk& chunk, int64_t tile) const {
    const int64_t row = first_row(chunk, tile + team(launch_).threads());
    if (row == first_row(chunk, tile) || row >= operands_.shape.rows) return {};
    return ahead_of(from(operands_.a, row, chunk.depth),
                    std::min(blocking_.tile_rows, operands_.shape.rows - row),
                    std::min(kGemmDepth, chunk.terms));
  }

  bool has_bias() const { return !blocking_.added && launch_.operands.size() > 2; }

  // Adds or stores n summed elements from `offset` on into the result.
  void finish_row(int64_t offset, int64_t n, const float* sum) const {
    const Tensor& y = launch_.results[0];
    if (!blocking_.added) return store(y, offset, n, sum);
    float* to = y.as<float>() + offset;
    if (starts_accumulator()) {
      std::copy_n(sum, n, to);
    } else {
      add_to_row(sum, n, to);
    }
  }

  // Whether the accumulator's contents are from another step: the operand after the factors counts
  // micro-batches.
  bool starts_accumulator() const {
    return launch_.operands.size() > 3 && scalar_i32(launch_.operands[3]) == 0;
  }

  const Launch& launch_;
  MatmulOperands operands_;
  Blocking blocking_;
  const GemmVariant& variant_;
  float* packed_;
  float* partial_;  // rows x columns of a chunk
};

void launch_matmul(const Launch& launch) {
  Multiplication(launch).run();
}

int64_t matmul_workspace(const Call& call) {
  const GemmShape shape = shape_of(call);
  const Blocking blocking(call, shape);
  const int64_t partial = blocking.partial ? shape.rows * blocking.chunk_cols : 0;
  return (blocking.packed_floats() + partial) * static_cast<int64_t>(sizeof(float));
}

void launch_sum_rows(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const int64_t length = row_length(x.shape);
  const Partials partials(row_count(x.shape), length, launch.workspace);
  team(launch).run(partials.chunks(), [&](int64_t chunk, float* scratch) {
    float* sum = partials.start(chunk);
    for (int64_t row = partials.first_row(chunk); row < partials.end_row(chunk); ++row) {
      add_to_row(load(x, row * length, length, scratch), length, sum);
    }
  });
  partials.combine(team(launch), launch.results.at(0));
}

Decision supports_sum_rows(const Call& call) {
  return supports_rows(call, call.type(0), 1);
}

int64_t sum_rows_workspace(const Call& call) {
  return Partials::bytes(row_count(call.type(0).shape), row_length(call.type(0).shape));
}

}  // namespace

std::span<const Kernel> cpu_matmul_kernels() {
  static const Kernel rows[] = {
      {"matmul", "tiled", supports_cpu_dtypes, matmul_workspace, launch_matmul},
      {"matmul_add", "tiled", supports_cpu_dtypes, matmul_workspace, launch_matmul},
      {"matmul_accumulate", "tiled", supports_cpu_dtypes, matmul_workspace, launch_matmul},
      {"sum_rows", "chunks", supports_sum_rows, sum_rows_workspace, launch_sum_rows},
  };
  return rows;
}

}  // namespace weft
