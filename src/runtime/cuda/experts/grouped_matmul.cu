// Matmuls of the rows of many experts. A fixed grid walks the tiles of the result, whose number is
// read from the offsets. One block owns a tile and adds its terms in order, so neither the sizes of
// groups nor the grid change bits. Two engines compute a tile: matrix units for half types in
// aligned rows, and fused multiply-adds for the rest.
#include <algorithm>
#include <type_traits>

#include "runtime/cuda/attention/tile_matmul.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launches.h"
#include "runtime/expert_rows.h"

namespace weft::cuda {

namespace {

// Where the elements of a factor's tile lie: rows of terms, or terms of rows.
enum class Along { Terms, Rows };

// The factors of a tile: element (i, term) of the left one, and (term, j) of the right one. Each
// begins with the first element of the tile.
struct Factors {
  Elements left, right;
  int64_t left_pitch = 0, right_pitch = 0;
  int rows = 0, cols = 0;  // that exist in the tile; at most its size
  int terms = 0;
};

__device__ Elements from(const Elements& data, int64_t i) {
  return {static_cast<char*>(data.data) + i * (data.dtype == DType::F32 ? 4 : 2), data.dtype};
}

template <class Sums>
__device__ void clear_sums(Sums& sums) {
#pragma unroll
  for (size_t i = 0; i < std::extent_v<Sums>; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] = 0;
  }
}

template <class Sums>
__device__ void add_sums(Sums& sums, const Sums& more) {
#pragma unroll
  for (size_t i = 0; i < std::extent_v<Sums>; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] = more[i][j] + sums[i][j];
  }
}

template <class Sums>
__device__ void copy_sums(Sums& to, const Sums& from) {
#pragma unroll
  for (size_t i = 0; i < std::extent_v<Sums>; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) to[i][j] = from[i][j];
  }
}

// Matrix units: 8 warps, each with 64 x 32 of the tile's sums; copies run several steps ahead.
template <DType kType, Along kLeft, Along kRight>
struct TensorEngine {
  using Element = Stored<kType>;
  using P = TileMatmul<kType>;
  static constexpr int kRows = 128, kCols = 128, kThreads = 256, kBlocks = 2;
  static constexpr int kStep = 32;  // terms per copy
  static constexpr int kStages = 4;
  static constexpr int kChunk = 8;               // elements per copy instruction
  static constexpr int kTermsPitch = kStep + 8;  // padding, so that ldmatrix hits all banks
  static constexpr int kRowsPitch = kRows + 8;
  static constexpr int kWarpBlocks = 4, kWarpPairs = 2;  // 16 rows each; 16 columns each
  static constexpr int kSums = kWarpBlocks * kWarpPairs * 2;
  using Sums = float[kSums][4];

  static constexpr int tile_elements(Along along) {
    return along == Along::Terms ? kRows * kTermsPitch : kStep * kRowsPitch;
  }
  struct Stage {
    alignas(128) Element left[tile_elements(kLeft)];
    alignas(128) Element right[tile_elements(kRight)];
  };
  struct Shared {
    Stage stages[kStages];
  };

  // Copies the tiles of one factor, kStep terms each; what does not exist becomes zero.
  template <Along kAlong>
  struct Copies {
    static constexpr bool kTerms = kAlong == Along::Terms;
    static constexpr int kChunks = (kTerms ? kStep : kRows) / kChunk;  // of a line
    static constexpr int kLines = kThreads / kChunks;                  // at once
    static constexpr int kTimes = (kTerms ? kRows : kStep) / kLines;
    static constexpr int kPitch = kTerms ? kTermsPitch : kRowsPitch;

    const Element* from;  // this thread's first chunk of the next tile
    int64_t apart;        // elements between its chunks
    int rows, terms;      // that are left from its first chunk on

    __device__ Copies(const Elements& data, int64_t pitch, int all_rows, int all_terms)
        : from(static_cast<const Element*>(data.data) + line() * pitch + at()),
          apart(kLines * pitch),
          rows(all_rows - (kTerms ? line() : at())),
          terms(all_terms - (kTerms ? at() : line())) {}

    static __device__ int line() { return static_cast<int>(threadIdx.x) / kChunks; }
    static __device__ int at() { return static_cast<int>(threadIdx.x) % kChunks * kChunk; }

    __device__ void start(Element* tile) {
      Element* to = tile + line() * kPitch + at();
#pragma unroll
      for (int i = 0; i < kTimes; ++i) {
        const bool inside =
            kTerms ? i * kLines < rows && 0 < terms : 0 < rows && i * kLines < terms;
        copy_async(to + i * kLines * kPitch, from + i * apart, inside);
      }
      from += kTerms ? kStep : kTimes * apart;
      terms -= kStep;
    }
  };

  // 16 x 16 elements of the left factor from row `row` and term `term` of a stage on.
  static __device__ void load_left(typename P::Left& left, const Element* tile, int row, int term) {
    if constexpr (kLeft == Along::Terms) {
      P::template left_rows<kTermsPitch>(left, tile + row * kTermsPitch + term);
    } else {
      const int lane = threadIdx.x % 32;
      const int line = term + lane / 16 * 8 + lane % 8;
      load_blocks_transposed(left, tile + line * kRowsPitch + row + lane / 8 % 2 * 8);
    }
  }
  static __device__ void load_right(typename P::Right& right, const Element* tile, int col,
                                    int term) {
    if constexpr (kRight == Along::Terms) {
      P::template right_rows<kTermsPitch>(right, tile + col * kTermsPitch + term);
    } else {
      P::template right_columns<kRowsPitch>(right, tile + term * kRowsPitch + col);
    }
  }

  static __device__ int warp_row() {
    return static_cast<int>(threadIdx.x) / 32 / 4 * 64;
  }
  static __device__ int warp_col() {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 32;
  }

  static __device__ void multiply_stage(Sums& sums, const Stage& stage) {
#pragma unroll
    for (int term = 0; term < kStep; term += P::kDepth) {
      typename P::Right right[kWarpPairs];
#pragma unroll
      for (int pair = 0; pair < kWarpPairs; ++pair) {
        load_right(right[pair], stage.right, warp_col() + pair * 16, term);
      }
      typename P::Left left[2];  // of this block of rows and of the next
      load_left(left[0], stage.left, warp_row(), term);
#pragma unroll
      for (int block = 0; block < kWarpBlocks; ++block) {
        const auto& own = left[block % 2];
        if (block + 1 < kWarpBlocks) {
          load_left(left[(block + 1) % 2], stage.left, warp_row() + (block + 1) * 16, term);
        }
#pragma unroll
        for (int pair = 0; pair < kWarpPairs; ++pair) {
          const int at = (block * kWarpPairs + pair) * 2;
          multiply_add(Element(), sums[at], own, right[pair][0], right[pair][1]);
          multiply_add(Element(), sums[at + 1], own, right[pair][2], right[pair][3]);
        }
      }
    }
  }

  // sums = left right.
  static __device__ void multiply(Sums& sums, const Factors& factors, Shared& shared) {
    clear_sums(sums);
    const int steps = (factors.terms + kStep - 1) / kStep;
    Copies<kLeft> left(factors.left, factors.left_pitch, factors.rows, factors.terms);
    Copies<kRight> right(factors.right, factors.right_pitch, factors.cols, factors.terms);
    const auto copy = [&](int step) {
      if (step < steps) {
        Stage& stage = shared.stages[step % kStages];
        left.start(stage.left);
        right.start(stage.right);
      }
      end_copies();
    };
#pragma unroll 1
    for (int step = 0; step < kStages - 1; ++step) copy(step);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      await_copies_before<kStages - 2>();
      __syncthreads();  // all have copied this stage and read the one that is filled next
      copy(step + kStages - 1);
      multiply_stage(sums, shared.stages[step % kStages]);
    }
    __syncthreads();  // the next tile fills the stages from the first on
  }

  static __device__ void store(const Sums& sums, const Elements& to, int64_t pitch, int rows,
                               int cols) {
    if (to.dtype == DType::F32) {
      store_as(sums, static_cast<float*>(to.data), pitch, rows, cols);
    } else {
      store_as(sums, static_cast<Element*>(to.data), pitch, rows, cols);
    }
  }

 private:
  template <class Out>
  static __device__ void store_as(const Sums& sums, Out* to, int64_t pitch, int rows, int cols) {
    to += (warp_row() + lane_row(0)) * pitch + warp_col() + lane_column();
    rows -= warp_row() + lane_row(0);
    cols -= warp_col() + lane_column();
#pragma unroll
    for (int half = 0; half < 2 * kWarpBlocks; ++half) {  // eight rows
      if (half * kGroup < rows) {
#pragma unroll
        for (int group = 0; group < 2 * kWarpPairs; ++group) {
          const float(&four)[4] = sums[half / 2 * 2 * kWarpPairs + group];
          // Columns are a multiple of eight.
          if (group * kGroup >= cols) continue;
          put(to + group * kGroup, four[half % 2 * 2], four[half % 2 * 2 + 1]);
        }
      }
      to += kGroup * pitch;
    }
  }
  static __device__ void put(float* to, float first, float second) {
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
  }
  static __device__ void put(Element* to, float first, float second) {
    *reinterpret_cast<uint32_t*>(to) = pack(Element(), first, second);
  }
};

// Fused multiply-adds, one per term: each thread has 4 x 4 sums.
template <Along kLeft, Along kRight>
struct PlainEngine {
  static constexpr int kRows = 64, kCols = 64, kThreads = 256, kBlocks = 2;
  static constexpr int kStep = 16;
  static constexpr int kSums = 4;  // rows of a thread
  using Sums = float[kSums][4];
  struct Shared {
    float left[kStep][kRows + 4], right[kStep][kCols + 4];
  };

  // Neighbouring threads read neighbouring elements.
  template <Along kAlong>
  static __device__ void load(float (&to)[kStep][kRows + 4], const Elements& from, int64_t pitch,
                              int rows, int first, int terms) {
    for (int i = threadIdx.x; i < kStep * kRows; i += kThreads) {
      const int term = kAlong == Along::Terms ? i % kStep : i / kRows;
      const int row = kAlong == Along::Terms ? i / kStep : i % kRows;
      const bool inside = row < rows && first + term < terms;
      const int64_t at =
          kAlong == Along::Terms ? row * pitch + (first + term) : (first + term) * pitch + row;
      to[term][row] = inside ? from.get(at) : 0.0f;
    }
  }

  static __device__ void multiply(Sums& sums, const Factors& factors, Shared& shared) {
    clear_sums(sums);
    const int row = threadIdx.x / 16 * 4, col = threadIdx.x % 16 * 4;
    for (int first = 0; first < factors.terms; first += kStep) {
      load<kLeft>(shared.left, factors.left, factors.left_pitch, factors.rows, first,
                  factors.terms);
      load<kRight>(shared.right, factors.right, factors.right_pitch, factors.cols, first,
                   factors.terms);
      __syncthreads();
      for (int term = 0; term < kStep; ++term) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sums[i][j] = fmaf(shared.left[term][row + i], shared.right[term][col + j], sums[i][j]);
          }
        }
      }
      __syncthreads();
    }
  }

  static __device__ void store(const Sums& sums, const Elements& to, int64_t pitch, int rows,
                               int cols) {
    const int row = threadIdx.x / 16 * 4, col = threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (row + i < rows && col + j < cols) to.put((row + i) * pitch + col + j, sums[i][j]);
      }
    }
  }
};

__host__ __device__ int64_t tiles(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

__device__ int smaller(int size, int64_t left) {
  return left < size ? static_cast<int>(left) : size;
}

// The tiles of rows of all groups, one group per expert and source, as sums over the groups before.
template <int kThreads>
struct RowTiles {
  int32_t* starts;  // in shared memory, one more than groups
  int groups;

  template <int kRows>
  __device__ void count(const ExpertRows& rows) {
    __shared__ int32_t sums[kThreads];
    const int each = (groups + kThreads - 1) / kThreads;
    const int first = static_cast<int>(threadIdx.x) * each, end = min(first + each, groups);
    int32_t own = 0;
    for (int group = first; group < end; ++group) {
      own += static_cast<int32_t>(tiles(range(rows, group).rows, kRows));
    }
    sums[threadIdx.x] = own;
    __syncthreads();
    for (int step = 1; step < kThreads; step *= 2) {
      const int32_t before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
      __syncthreads();
      sums[threadIdx.x] += before;
      __syncthreads();
    }
    int32_t start = sums[threadIdx.x] - own;
    for (int group = first; group < end; ++group) {
      starts[group] = start;
      start += static_cast<int32_t>(tiles(range(rows, group).rows, kRows));
    }
    if (threadIdx.x == 0) starts[groups] = sums[kThreads - 1];
    __syncthreads();
  }

  __device__ static int64_t expert(const ExpertRows& rows, int group) {
    return group / rows.sources;
  }
  __device__ static RowRange range(const ExpertRows& rows, int group) {
    return rows.of(group % rows.sources, expert(rows, group));
  }

  // The last group that starts at or before the tile: those without tiles come before it.
  __device__ int group_of(int64_t tile) const {
    int low = 0, high = groups;  // starts[low] <= tile < starts[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (starts[middle] <= tile ? low : high) = middle;
    }
    return low;
  }
};

struct RowsMatmul {
  Elements rows, w, y;
  ExpertRows groups;
  int64_t terms = 0, cols = 0;
};

// Tiles in one row of tiles are neighbours, so blocks that run together share their factors.
template <class Engine, Along kRight>
__global__ void __launch_bounds__(Engine::kThreads, Engine::kBlocks) rows_matmul(RowsMatmul args) {
  auto& shared = dynamic_shared<typename Engine::Shared>();
  RowTiles<Engine::kThreads> row_tiles{
      reinterpret_cast<int32_t*>(&shared + 1),
      static_cast<int>(args.groups.sources * args.groups.experts())};
  row_tiles.template count<Engine::kRows>(args.groups);
  const int64_t across = tiles(args.cols, Engine::kCols);
  const int64_t count = row_tiles.starts[row_tiles.groups] * across;
  for (int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const int64_t row_tile = tile / across, col = tile % across * Engine::kCols;
    const int group = row_tiles.group_of(row_tile);
    const RowRange range = row_tiles.range(args.groups, group);
    const int64_t skipped = (row_tile - row_tiles.starts[group]) * Engine::kRows;
    const int64_t row = range.first + skipped;
    const int64_t w = row_tiles.expert(args.groups, group) * args.terms * args.cols;
    Factors factors;
    factors.left = from(args.rows, row * args.terms);
    factors.left_pitch = args.terms;
    factors.right = from(args.w, w + (kRight == Along::Terms ? col * args.terms : col));
    factors.right_pitch = kRight == Along::Terms ? args.terms : args.cols;
    factors.rows = smaller(Engine::kRows, range.rows - skipped);
    factors.cols = smaller(Engine::kCols, args.cols - col);
    factors.terms = static_cast<int>(args.terms);
    typename Engine::Sums sums;
    Engine::multiply(sums, factors, shared);
    Engine::store(sums, from(args.y, row * args.cols + col), args.cols, factors.rows, factors.cols);
  }
}

struct WeightsMatmul {
  Elements a, b, dw;
  ExpertRows groups;
  int64_t rows = 0, cols = 0;  // of an expert's weights
};

// The sources are added like a binary counter: level l waits with the sum of 2^l of them. The rest
// is added from the lowest level on, which is the balanced binary tree.
template <class Engine>
__global__ void __launch_bounds__(Engine::kThreads, Engine::kBlocks)
    weights_matmul(WeightsMatmul args) {
  auto& shared = dynamic_shared<typename Engine::Shared>();
  const int64_t across = tiles(args.cols, Engine::kCols);
  const int64_t per_expert = tiles(args.rows, Engine::kRows) * across;
  const int64_t count = args.groups.experts() * per_expert;
  for (int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const int64_t expert = tile / per_expert;
    const int64_t row = tile % per_expert / across * Engine::kRows;
    const int64_t col = tile % across * Engine::kCols;
    Factors factors;
    factors.left_pitch = args.rows;
    factors.right_pitch = args.cols;
    factors.rows = smaller(Engine::kRows, args.rows - row);
    factors.cols = smaller(Engine::kCols, args.cols - col);
    typename Engine::Sums sums, waiting[kSourceLevels];
    const int64_t last = args.groups.sources - 1;
    for (int64_t source = 0; source <= last; ++source) {
      const RowRange range = args.groups.of(source, expert);
      factors.left = from(args.a, range.first * args.rows + row);
      factors.right = from(args.b, range.first * args.cols + col);
      factors.terms = static_cast<int>(range.rows);
      Engine::multiply(sums, factors, shared);
      int level = 0;
      for (; source >> level & 1; ++level) add_sums(sums, waiting[level]);
      if (source == last) {
        for (++level; last >> level > 0; ++level) {
          if ((last + 1) >> level & 1) add_sums(sums, waiting[level]);
        }
      } else {
        copy_sums(waiting[level], sums);
      }
    }
    Engine::store(sums, from(args.dw, (expert * args.rows + row) * args.cols + col), args.cols,
                  factors.rows, factors.cols);
  }
}

// As many blocks as run at once, but no more than `tiles`.
template <class Engine, class Args>
void launch_persistent(void (*kernel)(Args), const Args& args, int64_t tiles, size_t more_shared,
                       cudaStream_t stream) {
  int device = 0, processors = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const size_t shared = sizeof(typename Engine::Shared) + more_shared;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared)));
  const int64_t blocks = std::min<int64_t>(tiles, processors * Engine::kBlocks);
  kernel<<<blocks_for(blocks, 1), Engine::kThreads, shared, stream>>>(args);
  CUDA_CHECK(cudaGetLastError());
}

template <class Engine, Along kRight>
void launch_rows(const Launch& launch) {
  const Tensor& rows = launch.operands.at(0);
  const Tensor& y = launch.results.at(0);
  RowsMatmul args;
  args.rows = elements(rows);
  args.groups = expert_rows(rows, launch.operands.at(1));
  args.w = elements(launch.operands.at(2));
  args.y = elements(y);
  args.terms = row_length(rows);
  args.cols = row_length(y);
  const int64_t groups = args.groups.sources * args.groups.experts();
  const int64_t most = (row_count(rows) / Engine::kRows + groups) * tiles(args.cols, Engine::kCols);
  launch_persistent<Engine>(rows_matmul<Engine, kRight>, args, most,
                            static_cast<size_t>(groups + 1) * sizeof(int32_t), stream_of(launch));
}

template <class Engine>
void launch_weights(const Launch& launch) {
  const Tensor& a = launch.operands.at(0);
  const Tensor& b = launch.operands.at(1);
  WeightsMatmul args;
  args.a = elements(a);
  args.b = elements(b);
  args.dw = elements(launch.results.at(0));
  args.groups = expert_rows(a, launch.operands.at(2));
  args.rows = row_length(a);
  args.cols = row_length(b);
  launch_persistent<Engine>(
      weights_matmul<Engine>, args,
      args.groups.experts() * tiles(args.rows, Engine::kRows) * tiles(args.cols, Engine::kCols), 0,
      stream_of(launch));
}

// Calls action(DTypeTag) for the type of a half tensor.
template <class Action>
void with_half(DType dtype, Action action) {
  CHECK(dtype == DType::BF16 || dtype == DType::F16, "matrix units for ", dtype_name(dtype));
  dtype == DType::BF16 ? action(DTypeTag<DType::BF16>()) : action(DTypeTag<DType::F16>());
}

}  // namespace

void launch_tensor_grouped_matmul(const Launch& launch) {
  with_half(launch.operands.at(0).dtype, [&](auto tag) {
    if (launch.call->bool_attr("tb")) {
      launch_rows<TensorEngine<tag.kValue, Along::Terms, Along::Terms>, Along::Terms>(launch);
    } else {
      launch_rows<TensorEngine<tag.kValue, Along::Terms, Along::Rows>, Along::Rows>(launch);
    }
  });
}

void launch_grouped_matmul(const Launch& launch) {
  if (launch.call->bool_attr("tb")) {
    launch_rows<PlainEngine<Along::Terms, Along::Terms>, Along::Terms>(launch);
  } else {
    launch_rows<PlainEngine<Along::Terms, Along::Rows>, Along::Rows>(launch);
  }
}

void launch_tensor_grouped_matmul_grad_w(const Launch& launch) {
  with_half(launch.operands.at(0).dtype, [&](auto tag) {
    launch_weights<TensorEngine<tag.kValue, Along::Rows, Along::Rows>>(launch);
  });
}

void launch_grouped_matmul_grad_w(const Launch& launch) {
  launch_weights<PlainEngine<Along::Rows, Along::Rows>>(launch);
}

}  // namespace weft::cuda
