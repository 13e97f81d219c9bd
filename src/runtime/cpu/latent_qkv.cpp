// latent_qkv and its gradient: copies of parts of heads, and the sum of the part that heads share.
#include <algorithm>
#include <cstring>

#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"

namespace weft {

namespace {

// Sizes in elements: of a head of q or k, of the part of a key that is its own, and of a value.
struct LatentSizes {
  int64_t heads, dim, own, value_dim;

  int64_t pair() const { return own + value_dim; }
  int64_t shared() const { return dim - own; }
  int64_t packed_width() const { return heads * (2 * dim + value_dim); }
  // First columns of a head's key and value in packed rows.
  int64_t key(int64_t head) const { return (heads + head) * dim; }
  int64_t value(int64_t head) const { return 2 * heads * dim + head * value_dim; }
};

LatentSizes sizes_of(const Launch& launch, const Tensor& q, const Tensor& kv,
                     const Tensor& shared) {
  const int64_t heads = launch.call->int_attr("heads");
  const int64_t dim = row_length(q) / heads, own = dim - row_length(shared);
  return {heads, dim, own, row_length(kv) / heads - own};
}

// Calls fn(row) for all rows, in tiles.
template <class Fn>
void for_rows(const Launch& launch, const Tensor& packed, const Fn& fn) {
  const int64_t rows = row_count(packed), step = tile_rows(row_length(packed));
  team(launch).run(ceil_div(rows, step), [&](int64_t tile) {
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) fn(row);
  });
}

// Copies `n` elements between tensors of the same dtype.
void copy(const Tensor& to, int64_t to_at, const Tensor& from, int64_t from_at, int64_t n) {
  const int64_t element = dtype_bytes(to.dtype);
  std::memcpy(to.as<char>() + to_at * element, from.as<char>() + from_at * element,
              static_cast<size_t>(n * element));
}

void launch_latent_qkv(const Launch& launch) {
  const Tensor& q = launch.operands.at(0);
  const Tensor& kv = launch.operands.at(1);
  const Tensor& shared = launch.operands.at(2);
  const Tensor& qkv = launch.results.at(0);
  const LatentSizes s = sizes_of(launch, q, kv, shared);
  for_rows(launch, qkv, [&](int64_t row) {
    const int64_t to = row * s.packed_width();
    copy(qkv, to, q, row * s.heads * s.dim, s.heads * s.dim);
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t from = (row * s.heads + head) * s.pair();
      copy(qkv, to + s.key(head), kv, from, s.own);
      copy(qkv, to + s.key(head) + s.own, shared, row * s.shared(), s.shared());
      copy(qkv, to + s.value(head), kv, from + s.own, s.value_dim);
    }
  });
}

// Sums go through a buffer that holds part of a row.
void add_shared(const LatentSizes& s, const Tensor& dqkv, const Tensor& dshared, int64_t row) {
  constexpr int64_t kColumns = 256;
  float sums[kColumns], summand[kColumns], result[kColumns];
  for (int64_t column = 0; column < s.shared(); column += kColumns) {
    const int64_t n = std::min(kColumns, s.shared() - column);
    std::fill_n(sums, n, 0.0f);
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t at = row * s.packed_width() + s.key(head) + s.own + column;
      add_to_row(load(dqkv, at, n, summand), n, sums);
    }
    float* to = place(dshared, row * s.shared() + column, result);
    std::copy_n(sums, n, to);
    store(dshared, row * s.shared() + column, n, to);
  }
}

void launch_latent_qkv_grad(const Launch& launch) {
  const Tensor& dqkv = launch.operands.at(0);
  const Tensor& dq = launch.results.at(0);
  const Tensor& dkv = launch.results.at(1);
  const Tensor& dshared = launch.results.at(2);
  const LatentSizes s = sizes_of(launch, dq, dkv, dshared);
  for_rows(launch, dqkv, [&](int64_t row) {
    const int64_t from = row * s.packed_width();
    copy(dq, row * s.heads * s.dim, dqkv, from, s.heads * s.dim);
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t to = (row * s.heads + head) * s.pair();
      copy(dkv, to, dqkv, from + s.key(head), s.own);
      copy(dkv, to + s.own, dqkv, from + s.value(head), s.value_dim);
    }
    add_shared(s, dqkv, dshared, row);
  });
}

}  // namespace

std::span<const Kernel> cpu_latent_qkv_kernels() {
  static const Kernel rows[] = {
      {"latent_qkv", "rows", supports_cpu_dtypes, nullptr, launch_latent_qkv},
      {"latent_qkv_grad", "rows", supports_cpu_dtypes, nullptr, launch_latent_qkv_grad},
  };
  return rows;
}

}  // namespace weft
