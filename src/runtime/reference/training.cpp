// Embeddings, positions and the loss.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

int32_t checked_id(int32_t id, int64_t limit, std::string_view what) {
  CHECK(id >= 0 && id < limit, what, " ", id, " is outside 0 .. ", limit - 1);
  return id;
}

// The largest of some values and the sum of exp(value - largest).
struct ExpSum {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;
};

ExpSum exp_sum(const double* values, size_t n) {
  ExpSum result;
  if (n == 0) return result;
  result.largest = *std::max_element(values, values + n);
  for (size_t i = 0; i < n; ++i) result.sum += std::exp(values[i] - result.largest);
  return result;
}

double log_sum_exp(const ExpSum& of) {
  return of.largest + std::log(of.sum);
}

// A shard of a vocabulary: ids from `first` on. Without the optional operand that gives its number,
// it is the full vocabulary, which has all ids.
struct Shard {
  bool full = true;
  int64_t first = 0;
  int64_t size = 0;

  Shard(const Launch& launch, size_t coordinate, int64_t ids)
      : full(launch.operands.size() <= coordinate), size(ids) {
    if (!full) first = read_ints(launch.operands[coordinate])[0] * size;
  }
  // The position of the id in the shard; -1 if it is in another one.
  int64_t find(int32_t id, std::string_view what) const {
    if (full) return checked_id(id, size, what);
    return id >= first && id < first + size ? id - first : -1;
  }
  // The number of columns that are not padding.
  size_t valid(int64_t classes) const {
    return static_cast<size_t>(full ? size : std::clamp<int64_t>(classes - first, 0, size));
  }
};

}  // namespace

void embedding(const Launch& launch) {
  const std::vector<int32_t> ids = read_ints(launch.operands[0]);
  const Values w = read(launch.operands[1]);
  const size_t width = static_cast<size_t>(row_length(launch.operands[1]));
  const Shard shard(launch, 2, launch.operands[1].shape[0]);
  Values y(ids.size() * width, 0.0);
  for (size_t place = 0; place < ids.size(); ++place) {
    const int64_t row = shard.find(ids[place], "token id");
    if (row >= 0) std::copy_n(&w[static_cast<size_t>(row) * width], width, &y[place * width]);
  }
  write(launch.results[0], y);
}

void embedding_grad(const Launch& launch) {
  const std::vector<int32_t> ids = read_ints(launch.operands[0]);
  const Values dy = read(launch.operands[1]);
  const size_t width = static_cast<size_t>(row_length(launch.operands[1]));
  const Shard shard(launch, 2, launch.results[0].shape[0]);
  Values dw(static_cast<size_t>(shard.size) * width, 0.0);
  for (size_t place = 0; place < ids.size(); ++place) {
    const int64_t row = shard.find(ids[place], "token id");
    if (row < 0) continue;
    double* sums = &dw[static_cast<size_t>(row) * width];
    for (size_t c = 0; c < width; ++c) sums[c] += dy[place * width + c];
  }
  write(launch.results[0], dw);
}

namespace {

size_t elements_per_sample(const Tensor& x) {
  return static_cast<size_t>(x.shape.at(1) * x.shape.at(2));
}

size_t shard_number(const Tensor& coordinate) {
  return static_cast<size_t>(read_ints(coordinate).at(0));
}

}  // namespace

void add_positions(const Launch& launch) {
  Values y = read(launch.operands[0]);
  const Values w = read(launch.operands[1]);
  const size_t per_sample = elements_per_sample(launch.operands[0]);
  const size_t first =
      launch.operands.size() > 2 ? shard_number(launch.operands[2]) * per_sample : 0;
  for (size_t i = 0; i < y.size(); ++i) y[i] += w.at(first + i % per_sample);
  write(launch.results[0], y);
}

void add_bias(const Launch& launch) {
  Values y = read(launch.operands[0]);
  const Values b = read(launch.operands[1]);
  for (size_t i = 0; i < y.size(); ++i) y[i] += b[i % b.size()];
  write(launch.results[0], y);
}

void add_positions_grad(const Launch& launch) {
  const Values dy = read(launch.operands[0]);
  const size_t per_sample = elements_per_sample(launch.operands[0]);
  const size_t first =
      launch.operands.size() > 1 ? shard_number(launch.operands[1]) * per_sample : 0;
  Values dw(static_cast<size_t>(launch.results[0].elements()), 0.0);
  for (size_t i = 0; i < dy.size(); ++i) dw.at(first + i % per_sample) += dy[i];
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
    lse[row] = log_sum_exp(exp_sum(values, vocabulary));
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
  const size_t columns = static_cast<size_t>(row_length(launch.operands[1]));
  const Shard shard(launch, 5, row_length(launch.operands[1]));
  const size_t valid = shard.valid(launch.call->int_attr("classes"));
  for (size_t i = 0; i < dlogits.size(); ++i) {
    const size_t row = i / columns;
    const size_t column = i % columns;
    const bool is_target = shard.first + static_cast<int64_t>(column) == targets[row];
    const double difference = std::exp(dlogits[i] - lse[row]) - (is_target ? 1.0 : 0.0);
    const bool zero = targets[row] < 0 || column >= valid;
    dlogits[i] = zero ? 0.0 : difference * dloss / count;
  }
  write(launch.results[0], dlogits);
}

void cross_entropy_stats(const Launch& launch) {
  const Values logits = read(launch.operands[0]);
  const std::vector<int32_t> targets = read_ints(launch.operands[1]);
  const size_t columns = static_cast<size_t>(row_length(launch.operands[0]));
  const Shard shard(launch, 2, row_length(launch.operands[0]));
  const int64_t classes = launch.call->int_attr("classes");
  Values stats;
  for (size_t row = 0; row < targets.size(); ++row) {
    const double* values = &logits[row * columns];
    const ExpSum valid = exp_sum(values, shard.valid(classes));
    CHECK(targets[row] < classes, "target ", targets[row], " is outside 0 .. ", classes - 1);
    const int64_t target = targets[row] < 0 ? -1 : shard.find(targets[row], "target");
    stats.insert(stats.end(), {valid.largest, valid.sum, target < 0 ? 0.0 : values[target]});
  }
  write(launch.results[0], stats);
}

void cross_entropy_combine(const Launch& launch) {
  const Values stats = read(launch.operands[0]);
  const std::vector<int32_t> targets = read_ints(launch.operands[1]);
  const double count = read(launch.operands[2])[0];
  const size_t shards = static_cast<size_t>(launch.operands[0].shape[0]);
  double sum = 0;
  Values lse(targets.size());
  for (size_t row = 0; row < targets.size(); ++row) {
    const auto of = [&](size_t shard) { return &stats[(shard * targets.size() + row) * 3]; };
    ExpSum all;
    double target_logit = 0;
    for (size_t s = 0; s < shards; ++s) all.largest = std::max(all.largest, of(s)[0]);
    for (size_t s = 0; s < shards; ++s) {
      all.sum += of(s)[1] * std::exp(of(s)[0] - all.largest);
      target_logit += of(s)[2];
    }
    lse[row] = log_sum_exp(all);
    if (targets[row] >= 0) sum += lse[row] - target_logit;
  }
  write(launch.results[0], {sum / count});
  write(launch.results[1], lse);
}

}  // namespace weft::reference
