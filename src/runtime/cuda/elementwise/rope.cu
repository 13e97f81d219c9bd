// rope and scale_queries. The frequencies are computed on the host in double and passed by value;
// angles are double, cosine and sine are rounded to f32. The plain kernel computes them for every
// element. The other one computes them once per row and frequency, into shared memory, while the
// row is loading.
#include <algorithm>
#include <cmath>

#include "plan/rope_frequencies.h"
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
  int64_t kept = 0;  // the first elements of a head
  bool interleaved = false;
  float sign = 1;
  double magnitude = 1;
  double frequency[kMaxHeadDim / 2];
};

struct Turn {
  float cosine;
  float sine;
};

__device__ Turn turn(const RopeArgs& args, int64_t position, int64_t pair) {
  const double angle = static_cast<double>(position) * args.frequency[pair];
  return {static_cast<float>(args.magnitude * cos(angle)),
          args.sign * static_cast<float>(args.magnitude * sin(angle))};
}

__global__ void rope(RopeArgs args) {
  const int64_t i = global_thread();
  if (i >= args.n) return;
  const int64_t col = i % args.width;
  const float x = args.x.get(i);
  const int64_t within = col % args.head_dim - args.kept;
  if (col >= args.rotated || within < 0) {
    args.y.put(i, x);
    return;
  }
  const int64_t row = i / args.width;
  const int64_t position = args.given != nullptr ? args.given[row] : row % args.positions;
  const int64_t half = (args.head_dim - args.kept) / 2;
  // The partner of the lower element of a pair lies behind it and is negated.
  const bool lower = args.interleaved ? within % 2 == 0 : within < half;
  const int64_t apart = args.interleaved ? 1 : half;
  const Turn by = turn(args, position, args.interleaved ? within / 2 : within % half);
  const float partner = args.x.get(lower ? i + apart : i - apart);
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
        const Turn by = turn(args, position, i);
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

struct ScaleArgs {
  Elements x, y;
  const int32_t* given = nullptr;  // the position of each row; null: its place in the sequence
  int64_t n = 0;
  int64_t positions = 0;
  int64_t width = 0;
  int64_t scaled = 0;  // the first columns of a row
  double scale = 0;
  int64_t floor = 1;
};

__global__ void scale_queries(ScaleArgs args) {
  const int64_t i = global_thread();
  if (i >= args.n) return;
  const int64_t row = i / args.width;
  const int64_t position = args.given != nullptr ? args.given[row] : row % args.positions;
  const float x = args.x.get(i);
  if (i % args.width >= args.scaled) {
    args.y.put(i, x);
    return;
  }
  const double steps = static_cast<double>((position + 1) / args.floor);
  args.y.put(i, x * static_cast<float>(1 + args.scale * log1p(steps)));
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
  args.kept = args.head_dim - rotary_dim(call);
  args.interleaved = call.bool_attr("interleaved");
  args.sign = call.bool_attr("inverse") ? -1.0f : 1.0f;
  args.magnitude = call.double_attr("magnitude");
  const std::vector<double> frequencies = rope_frequencies(call);
  std::copy(frequencies.begin(), frequencies.end(), args.frequency);
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

void launch_scale_queries(const Launch& launch) {
  const Call& call = *launch.call;
  const Tensor& x = launch.operands.at(0);
  ScaleArgs args;
  args.x = elements(x);
  args.y = elements(launch.results.at(0));
  if (launch.operands.size() > 1) args.given = launch.operands[1].as<int32_t>();
  args.n = x.elements();
  args.positions = x.shape.at(1);
  args.width = row_length(x);
  args.scaled = call.int_attr("heads") * call.int_attr("head_dim");
  args.scale = call.double_attr("scale");
  args.floor = call.int_attr("floor");
  scale_queries<<<blocks_for(args.n, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace weft::cuda
