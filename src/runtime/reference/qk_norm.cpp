// The norm of every query and key head, one head at a time, with weights or, as if they were 1,
// without.
#include <cmath>

#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

struct Heads {
  size_t q, kv, dim;

  size_t normed() const { return q + kv; }
  size_t all() const { return q + 2 * kv; }
};

Heads heads_of(const Launch& launch, const Tensor& x) {
  const auto q = static_cast<size_t>(launch.call->int_attr("heads"));
  const auto kv = static_cast<size_t>(launch.call->int_attr("kv_heads"));
  return {q, kv, static_cast<size_t>(row_length(x)) / (q + 2 * kv)};
}

// The operand, or ones if there is none of that number.
Values weight(const Launch& launch, size_t operand, size_t size) {
  return operand < launch.operands.size() ? read(launch.operands[operand]) : Values(size, 1.0);
}

}  // namespace

void qk_norm(const Launch& launch) {
  Values x = read(launch.operands[0]);
  const Heads heads = heads_of(launch, launch.operands[0]);
  const Values q = weight(launch, 1, heads.dim), k = weight(launch, 2, heads.dim);
  const double eps = launch.call->double_attr("eps");
  Values rstd;
  for (size_t at = 0; at < x.size() / heads.dim; ++at) {
    const size_t head = at % heads.all();
    if (head >= heads.normed()) continue;
    double* values = x.data() + at * heads.dim;
    double mean_square = 0;
    for (size_t i = 0; i < heads.dim; ++i) {
      mean_square += values[i] * values[i] / static_cast<double>(heads.dim);
    }
    rstd.push_back(1.0 / std::sqrt(mean_square + eps));
    for (size_t i = 0; i < heads.dim; ++i) values[i] *= rstd.back() * (head < heads.q ? q : k)[i];
  }
  write(launch.results[0], x);
  write(launch.results[1], rstd);
}

void qk_norm_grad(const Launch& launch) {
  Values dx = read(launch.operands[0]);  // what v keeps
  const Values x = read(launch.operands[1]);
  const Values rstd = read(launch.operands[2]);
  const Heads heads = heads_of(launch, launch.operands[1]);
  const Values q = weight(launch, 3, heads.dim), k = weight(launch, 4, heads.dim);
  Values dq(heads.dim, 0.0), dk(heads.dim, 0.0);
  for (size_t at = 0; at < x.size() / heads.dim; ++at) {
    const size_t head = at % heads.all();
    if (head >= heads.normed()) continue;
    const double scale = rstd[at / heads.all() * heads.normed() + head];
    const Values& w = head < heads.q ? q : k;
    Values& dw = head < heads.q ? dq : dk;
    double* d = dx.data() + at * heads.dim;
    const double* from = x.data() + at * heads.dim;
    double dot = 0;
    for (size_t i = 0; i < heads.dim; ++i) {
      dw[i] += d[i] * from[i] * scale;
      dot += d[i] * w[i] * from[i] * scale / static_cast<double>(heads.dim);
    }
    for (size_t i = 0; i < heads.dim; ++i) d[i] = scale * (d[i] * w[i] - from[i] * scale * dot);
  }
  write(launch.results[0], dx);
  if (launch.results.size() == 1) return;
  write(launch.results[1], dq);
  write(launch.results[2], dk);
}

}  // namespace weft::reference
