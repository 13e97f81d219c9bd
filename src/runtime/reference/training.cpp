// Embeddings, positions and the loss.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

int32_t checked_id(int32_t id, int64_t limit, std::string_view what) {
  CHECK(id >= 0 && id < limit, what, " ", id, " is outside 0 .. ", limit - 1);
  return id;
}

double log_sum_exp(const double* values, size_t n) {
  const double largest = *std::max_element(values, values + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(values[i] - largest);
  return largest + std::log(sum);
}

}  // namespace

void embedding(const Launch& launch) {
  const std::vector<int32_t> ids = read_ints(launch.operands[0]);
  const Values w = read(launch.operands[1]);
  const int64_t width = row_length(launch.operands[1]);
  Values y;
  for (int32_t id : ids) {
    const double* row =
        &w[static_cast<size_t>(checked_id(id, launch.operands[1].shape[0], "token id") * width)];
    y.insert(y.end(), row, row + width);
  }
  write(launch.results[0], y);
}

void embedding_grad(const Launch& launch) {
  const std::vector<int32_t> ids = read_ints(launch.operands[0]);
  const Values dy = read(launch.operands[1]);
  const size_t width = static_cast<size_t>(row_length(launch.operands[1]));
  const int64_t rows = launch.results[0].shape[0];
  Values dw(static_cast<size_t>(rows) * width, 0.0);
  for (size_t place = 0; place < ids.size(); ++place) {
    const size_t row = static_cast<size_t>(checked_id(ids[place], rows, "token id"));
    for (size_t c = 0; c < width; ++c) dw[row * width + c] += dy[place * width + c];
  }
  write(launch.results[0], dw);
}

void add_positions(const Launch& launch) {
  Values y = read(launch.operands[0]);
  const Values w = read(launch.operands[1]);
  const size_t per_sample =
      static_cast<size_t>(launch.operands[0].shape[1] * launch.operands[0].shape[2]);
  for (size_t i = 0; i < y.size(); ++i) y[i] += w[i % per_sample];
  write(launch.results[0], y);
}

void add_positions_grad(const Launch& launch) {
  const Values dy = read(launch.operands[0]);
  const size_t per_sample =
      static_cast<size_t>(launch.operands[0].shape[1] * launch.operands[0].shape[2]);
  Values dw(static_cast<size_t>(launch.results[0].elements()), 0.0);
  for (size_t i = 0; i < dy.size(); ++i) dw[i % per_sample] += dy[i];
  write(launch.results[0], dw);
}

void cross_entropy(const Launch& launch) {
  const Values logits = read(launch.operands[0]);
  const std::vector<int32_t> targets = read_ints(launch.operands[1]);
  const double count = read(launch.operands[2])[0];
  const size_t vocabulary = static_cast<size_t>(row_length(launch.operands[0]));
  double sum = 0;
  Values lse(targets.size());
  for (size_t row = 0; row < targets.size(); ++row) {
    const double* values = &logits[row * vocabulary];
    lse[row] = log_sum_exp(values, vocabulary);
    if (targets[row] < 0) continue;
    sum += lse[row] - values[checked_id(targets[row], static_cast<int64_t>(vocabulary), "target")];
  }
  write(launch.results[0], {sum / count});
  write(launch.results[1], lse);
}

void cross_entropy_grad(const Launch& launch) {
  const double dloss = read(launch.operands[0])[0];
  Values dlogits = read(launch.operands[1]);
  const std::vector<int32_t> targets = read_ints(launch.operands[2]);
  const Values lse = read(launch.operands[3]);
  const double count = read(launch.operands[4])[0];
  const size_t vocabulary = static_cast<size_t>(row_length(launch.operands[1]));
  for (size_t i = 0; i < dlogits.size(); ++i) {
    const size_t row = i / vocabulary;
    const double onehot = static_cast<int32_t>(i % vocabulary) == targets[row] ? 1.0 : 0.0;
    const double difference = std::exp(dlogits[i] - lse[row]) - onehot;
    dlogits[i] = targets[row] < 0 ? 0.0 : difference * dloss / count;
  }
  write(launch.results[0], dlogits);
}

void cross_entropy_both(const Launch& launch) {
  const std::vector<Tensor>& x = launch.operands;
  // Rounded in between, as the result of a separate op would be.
  const DType dtype = launch.results[1].dtype;
  std::vector<char> memory(static_cast<size_t>(x[2].elements() * dtype_bytes(dtype)));
  const Tensor lse{memory.data(), dtype, x[2].shape};
  Launch loss = launch;
  loss.operands = {x[1], x[2], x[3]};
  loss.results = {launch.results[1], lse};
  cross_entropy(loss);
  Launch grad = launch;
  grad.operands = {x[0], x[1], x[2], lse, x[3]};
  grad.results = {launch.results[0]};
  cross_entropy_grad(grad);
}

}  // namespace weft::reference
