// rope. The frequencies are made on the host in double and passed by value; angles are double,
// cosine and sine are rounded to f32. The plain kernel makes them for every element, the other one
// once per position and frequency, into a table that stays in the cache.
#include <cmath>

#include "runtime/cuda/launches.h"
#include "runtime/cuda/vector.h"

namespace weft::cuda {

namespace {

struct RopeArgs {
  Elements x, y;
  const int32_t* given = nullptr;  // the position of each row; null: its place in the sequence
  int64_t n = 0;
  int64_t positions = 0;
  int64_t width = 0;
  int64_t rotated = 0;  // the first columns of a row, whole heads
  int64_t head_dim = 0;
  float sign = 1;
  double frequency[kMaxHeadDim / 2];
};

struct Turn {
  float cosine;
  float sine;
};

__device__ Turn turn(int64_t position, double frequency, float sign) {
  const double angle = static_cast<double>(position) * frequency;
  return {static_cast<float>(cos(angle)), sign * static_cast<float>(sin(angle))};
}

__global__ void rope(RopeArgs args) {
  const int64_t i = global_thread();
  if (i >= args.n) return;
  const int64_t col = i % args.width;
  const float x = args.x.get(i);
  if (col >= args.rotated) {
    args.y.put(i, x);
    return;
  }
  const int64_t row = i / args.width;
  const int64_t position = args.given != nullptr ? args.given[row] : row % args.positions;
  const int64_t half = args.head_dim / 2;
  const int64_t within = col % args.head_dim;
  const Turn by = turn(position, args.frequency[within % half], args.sign);
  // Rotate-half: the partner of column c is c + half in the lower half, with a minus, else c -
  // half.
  const bool lower = within < half;
  const float partner = args.x.get(lower ? i + half : i - half);
  args.y.put(i, x * by.cosine + (lower ? -partner : partner) * by.sine);
}

// table [positions, cosine or sine, head_dim / 2]
__global__ void rope_table(RopeArgs args, float* table) {
  const int64_t half = args.head_dim / 2;
  const int64_t i = global_thread();
  if (i >= args.positions * half) return;
  const int64_t position = i / half;
  const Turn by = turn(position, args.frequency[i % half], args.sign);
  table[position * args.head_dim + i % half] = by.cosine;
  table[position * args.head_dim + half + i % half] = by.sine;
}

struct TableRopeArgs {
  const void* x = nullptr;
  void* y = nullptr;
  const float* table = nullptr;
  const int32_t* given = nullptr;
  int64_t units = 0;  // threads: eight pairs of a head, or eight elements that are copied
  int positions = 0;
  int width = 0;
  int rotated = 0;
  int head_dim = 0;
};

template <DType kType>
__global__ void table_rope(TableRopeArgs args) {
  const int64_t unit = global_thread();
  if (unit >= args.units) return;
  const int half = args.head_dim / 2;
  const int rotating = args.rotated / 2 / kLanes;
  const int per_row = rotating + (args.width - args.rotated + kLanes - 1) / kLanes;
  const int64_t row = unit / per_row;
  const int within = static_cast<int>(unit % per_row);
  const int64_t first = row * args.width;
  float low[kLanes];
  if (within >= rotating) {
    const int64_t at = first + args.rotated + (within - rotating) * kLanes;
    Vector<kType>::load(args.x, at, low);
    Vector<kType>::store(args.y, at, low);
    return;
  }
  const int pair = within * kLanes;  // counts pairs of a row
  const int64_t at = first + pair / half * args.head_dim + pair % half;
  const int64_t position = args.given != nullptr ? args.given[row] : row % args.positions;
  const float* table = args.table + position * args.head_dim + pair % half;
  float high[kLanes];
  float cosine[kLanes];
  float sine[kLanes];
  Vector<kType>::load(args.x, at, low);
  Vector<kType>::load(args.x, at + half, high);
  Vector<DType::F32>::load(table, 0, cosine);
  Vector<DType::F32>::load(table, half, sine);
  for (int e = 0; e < kLanes; ++e) {
    const float a = low[e];
    const float b = high[e];
    low[e] = a * cosine[e] + -b * sine[e];
    high[e] = b * cosine[e] + a * sine[e];
  }
  Vector<kType>::store(args.y, at, low);
  Vector<kType>::store(args.y, at + half, high);
}

// Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones kept,
// those between blended.
double scaled_frequency(double frequency, const Call& call) {
  const double factor = call.double_attr("factor");
  if (!(factor > 0)) return frequency;
  const double low = call.double_attr("low_freq_factor");
  const double high = call.double_attr("high_freq_factor");
  const double turns =
      static_cast<double>(call.int_attr("original_max_position")) * frequency / (2 * M_PI);
  if (turns < low) return frequency / factor;
  if (turns > high) return frequency;
  const double blend = (turns - low) / (high - low);
  return (1 - blend) * frequency / factor + blend * frequency;
}

RopeArgs rope_args(const Launch& launch) {
  const Call& call = *launch.call;
  const Tensor& x = launch.operands.at(0);
  RopeArgs args;
  args.x = elements(x);
  args.y = elements(launch.results.at(0));
  if (launch.operands.size() > 1) args.given = launch.operands[1].as<int32_t>();
  args.n = x.elements();
  args.positions = x.shape.at(1);
  args.width = row_length(x);
  args.head_dim = call.int_attr("head_dim");
  args.rotated = call.int_attr("heads") * args.head_dim;
  args.sign = call.bool_attr("inverse") ? -1.0f : 1.0f;
  const double theta = call.double_attr("theta");
  for (int64_t i = 0; i < args.head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(args.head_dim);
    args.frequency[i] = scaled_frequency(std::pow(theta, exponent), call);
  }
  return args;
}

}  // namespace

void launch_rope(const Launch& launch) {
  const RopeArgs args = rope_args(launch);
  rope<<<blocks_for(args.n, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

void launch_table_rope(const Launch& launch) {
  const RopeArgs plain = rope_args(launch);
  auto* table = static_cast<float*>(launch.workspace);
  rope_table<<<blocks_for(plain.positions * plain.head_dim / 2, kThreads), kThreads, 0,
               stream_of(launch)>>>(plain, table);
  const Tensor& x = launch.operands.at(0);
  TableRopeArgs args;
  args.x = x.data;
  args.y = launch.results.at(0).data;
  args.table = table;
  args.given = plain.given;
  args.positions = static_cast<int>(plain.positions);
  args.width = static_cast<int>(plain.width);
  args.rotated = static_cast<int>(plain.rotated);
  args.head_dim = static_cast<int>(plain.head_dim);
  const int64_t copied = (plain.width - plain.rotated) / kVector;
  args.units = row_count(x) * (plain.rotated / 2 / kVector + copied);
  with_dtype(x.dtype, [&](auto tag) {
    table_rope<tag.kValue>
        <<<blocks_for(args.units, kThreads), kThreads, 0, stream_of(launch)>>>(args);
  });
}

}  // namespace weft::cuda
