// rope. The frequencies are computed on the host in double and passed by value; angles are double,
// cosine and sine are rounded to f32. The plain kernel computes them for every element. The other
// one computes them once per row and frequency, into shared memory, while the row is loading.
#include <algorithm>
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
  int64_t rotated = 0;  // the first columns of a row, full heads
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
  // Rotate-half: the partner of column c is c + half in the lower half, negated, else c - half.
  const bool lower = within < half;
  const float partner = args.x.get(lower ? i + half : i - half);
  args.y.put(i, x * by.cosine + (lower ? -partner : partner) * by.sine);
}

constexpr int kRopeThreads = 256;

// One block per row: a thread rotates eight pairs of a head, or copies eight elements.
template <DType kType>
__global__ void __launch_bounds__(kRopeThreads) table_rope(RopeArgs args) {
  using V = Vector<kType>;
  __shared__ __align__(16) float cosines[kMaxHeadDim / 2];
  __shared__ __align__(16) float sines[kMaxHeadDim / 2];
  const int64_t row = blockIdx.x;
  const int half = static_cast<int>(args.head_dim) / 2;
  const int rotated = static_cast<int>(args.rotated);
  const int turning = rotated / 2 / kLanes;
  const int units = turning + (static_cast<int>(args.width) - rotated) / kLanes;
  for (int first = 0; first < units; first += blockDim.x) {
    const int unit = first + static_cast<int>(threadIdx.x);
    const bool turns = unit < turning;
    const int pair = unit * kLanes;  // index of the first pair in the row
    const int64_t at = row * args.width + (turns ? pair / half * args.head_dim + pair % half
                                                 : rotated + (unit - turning) * kLanes);
    typename V::Raw raw[2];
    if (unit < units) raw[0] = V::fetch(args.x.data, at);
    if (turns) raw[1] = V::fetch(args.x.data, at + half);
    if (first == 0) {
      const int64_t position = args.given != nullptr ? args.given[row] : row % args.positions;
      for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const Turn by = turn(position, args.frequency[i], args.sign);
        cosines[i] = by.cosine;
        sines[i] = by.sine;
      }
      __syncthreads();
    }
    if (unit >= units) return;
    float low[kLanes];
    V::unpack(raw[0], low);
    if (turns) {
      float high[kLanes];
      float cosine[kLanes];
      float sine[kLanes];
      V::unpack(raw[1], high);
      Vector<DType::F32>::load(cosines, pair % half, cosine);
      Vector<DType::F32>::load(sines, pair % half, sine);
      for (int e = 0; e < kLanes; ++e) {
        const float a = low[e];
        const float b = high[e];
        low[e] = a * cosine[e] + -b * sine[e];
        high[e] = b * cosine[e] + a * sine[e];
      }
      V::store(args.y.data, at + half, high);
    }
    V::store(args.y.data, at, low);
  }
}

// Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones kept,
// those in between blended.
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
  const RopeArgs args = rope_args(launch);
  const int64_t units = (args.rotated / 2 + args.width - args.rotated) / kVector;
  const int64_t threads = std::min<int64_t>((units + 31) / 32 * 32, kRopeThreads);
  const Tensor& x = launch.operands.at(0);
  with_dtype(x.dtype, [&](auto tag) {
    table_rope<tag.kValue>
        <<<blocks_for(row_count(x), 1), static_cast<unsigned>(threads), 0, stream_of(launch)>>>(
            args);
  });
}

}  // namespace weft::cuda
