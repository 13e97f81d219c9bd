// rope: one thread per element. The frequencies are made on the host in double and passed by value;
// angles are double, cosine and sine are rounded to f32.
#include <cmath>

#include "runtime/cuda/elements.h"
#include "runtime/cuda/kernels.h"

namespace weft::cuda {

namespace {

struct RopeArgs {
  Elements x, y;
  int64_t n = 0;
  int64_t positions = 0;
  int64_t width = 0;
  int64_t rotated = 0;  // the first columns of a row, whole heads
  int64_t head_dim = 0;
  float sign = 1;
  double frequency[kMaxHeadDim / 2];
};

__global__ void rope(RopeArgs args) {
  const int64_t i = global_thread();
  if (i >= args.n) return;
  const int64_t col = i % args.width;
  const float x = args.x.get(i);
  if (col >= args.rotated) {
    args.y.put(i, x);
    return;
  }
  const int64_t position = i / args.width % args.positions;
  const int64_t half = args.head_dim / 2;
  const int64_t within = col % args.head_dim;
  const double angle = static_cast<double>(position) * args.frequency[within % half];
  const float cosine = static_cast<float>(cos(angle));
  const float sine = args.sign * static_cast<float>(sin(angle));
  // Rotate-half: the partner of column c is c + half in the lower half, with a minus, else c -
  // half.
  const bool lower = within < half;
  const float partner = args.x.get(lower ? i + half : i - half);
  args.y.put(i, x * cosine + (lower ? -partner : partner) * sine);
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

}  // namespace

void launch_rope(const Launch& launch) {
  const Call& call = *launch.call;
  const Tensor& x = launch.operands.at(0);
  RopeArgs args;
  args.x = elements(x);
  args.y = elements(launch.results.at(0));
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
  rope<<<blocks_for(args.n, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace weft::cuda
