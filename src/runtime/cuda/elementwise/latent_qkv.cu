// latent_qkv and its gradient: one thread per element of a result.
#include "runtime/cuda/elements.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

// Rows of packed q|k|v next to q, kv and shared; sizes in elements.
struct LatentArgs {
  Elements qkv, q, kv, shared;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;        // of a head of q or k
  int64_t own = 0;        // the part of a key that is its own
  int64_t value_dim = 0;  // of a value

  __host__ __device__ int64_t pair() const { return own + value_dim; }
  __host__ __device__ int64_t shared_dim() const { return dim - own; }
  __host__ __device__ int64_t width() const { return heads * (2 * dim + value_dim); }
};

__global__ void latent_qkv(LatentArgs args) {
  const int64_t i = global_thread();
  if (i >= args.rows * args.width()) return;
  const int64_t row = i / args.width(), col = i % args.width();
  const int64_t keys = args.heads * args.dim, values = 2 * keys;
  if (col < keys) {
    args.qkv.put(i, args.q.get(row * keys + col));
    return;
  }
  const int64_t size = col < values ? args.dim : args.value_dim;
  const int64_t at = col - (col < values ? keys : values);
  const int64_t head = at / size, within = at % size;
  const int64_t own = (row * args.heads + head) * args.pair();
  if (col >= values) {
    args.qkv.put(i, args.kv.get(own + args.own + within));
  } else if (within < args.own) {
    args.qkv.put(i, args.kv.get(own + within));
  } else {
    args.qkv.put(i, args.shared.get(row * args.shared_dim() + within - args.own));
  }
}

// The elements of dq, then those of dkv, then those of dshared.
__global__ void latent_qkv_grad(LatentArgs args) {
  const int64_t keys = args.heads * args.dim, pairs = args.heads * args.pair();
  int64_t i = global_thread();
  if (i < args.rows * keys) {
    args.q.put(i, args.qkv.get(i / keys * args.width() + i % keys));
    return;
  }
  i -= args.rows * keys;
  if (i < args.rows * pairs) {
    const int64_t first = i / pairs * args.width(), head = i % pairs / args.pair();
    const int64_t within = i % args.pair();
    args.kv.put(i, args.qkv.get(within < args.own ? first + keys + head * args.dim + within
                                                  : first + 2 * keys + head * args.value_dim +
                                                        within - args.own));
    return;
  }
  i -= args.rows * pairs;
  if (i >= args.rows * args.shared_dim()) return;
  const int64_t first = i / args.shared_dim() * args.width() + keys + args.own;
  float sum = 0;
  for (int64_t head = 0; head < args.heads; ++head) {
    sum += args.qkv.get(first + head * args.dim + i % args.shared_dim());
  }
  args.shared.put(i, sum);
}

LatentArgs latent_args(const Launch& launch, const Tensor& qkv, const Tensor& q, const Tensor& kv,
                       const Tensor& shared) {
  LatentArgs args;
  args.qkv = elements(qkv);
  args.q = elements(q);
  args.kv = elements(kv);
  args.shared = elements(shared);
  args.rows = row_count(qkv);
  args.heads = launch.call->int_attr("heads");
  args.dim = row_length(q) / args.heads;
  args.own = args.dim - row_length(shared);
  args.value_dim = row_length(kv) / args.heads - args.own;
  return args;
}

}  // namespace

void launch_latent_qkv(const Launch& launch) {
  const LatentArgs args = latent_args(launch, launch.results.at(0), launch.operands.at(0),
                                      launch.operands.at(1), launch.operands.at(2));
  latent_qkv<<<blocks_for(args.rows * args.width(), kThreads), kThreads, 0, stream_of(launch)>>>(
      args);
}

void launch_latent_qkv_grad(const Launch& launch) {
  const LatentArgs args = latent_args(launch, launch.operands.at(0), launch.results.at(0),
                                      launch.results.at(1), launch.results.at(2));
  const int64_t n =
      launch.results[0].elements() + launch.results[1].elements() + launch.results[2].elements();
  latent_qkv_grad<<<blocks_for(n, kThreads), kThreads, 0, stream_of(launch)>>>(args);
}

}  // namespace weft::cuda
