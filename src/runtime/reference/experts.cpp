// Routing of tokens and the work of experts, one token or row at a time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

using Indices = std::vector<int32_t>;

size_t size_attr(const Launch& launch, std::string_view name) {
  return static_cast<size_t>(launch.call->int_attr(name));
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

Values softmax(Values x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value - largest);
  for (double& value : x) value /= sum;
  return x;
}

Values scores_of(const Values& logits, bool by_sigmoid) {
  if (!by_sigmoid) return softmax(logits);
  Values scores = logits;
  for (double& score : scores) score = sigmoid(score);
  return scores;
}

// The `count` greatest, best first, the lower index of equal ones.
std::vector<size_t> best(const Values& values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

// Closes the experts of all but the best groups.
Values close_groups(Values scores, size_t groups, size_t kept) {
  const size_t size = scores.size() / groups;
  Values sums;
  for (size_t group = 0; group < groups; ++group) {
    const Values members(scores.begin() + static_cast<std::ptrdiff_t>(group * size),
                         scores.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
    double sum = 0;
    for (const size_t i : best(members, std::min<size_t>(2, size))) sum += members[i];
    sums.push_back(sum);
  }
  const std::vector<size_t> open = best(sums, kept);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::find(open.begin(), open.end(), i / size) == open.end()) {
      scores[i] = -std::numeric_limits<double>::infinity();
    }
  }
  return scores;
}

// Row `row` of a matrix with rows of `length`.
Values row_of(const Values& values, size_t row, size_t length) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * length);
  return {begin, begin + static_cast<std::ptrdiff_t>(length)};
}

// The part of a normalised weight that is independent of the choice.
double weight_sum(const Values& scores, const std::vector<size_t>& chosen, bool by_sigmoid) {
  double sum = by_sigmoid ? 1e-20 : 0;
  for (const size_t expert : chosen) sum += scores[expert];
  return sum;
}

double log_sum_exp(const Values& x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

// The losses of a router, with what is the same for all tokens.
struct RouterLoss {
  bool by_sigmoid;
  Values counts;
  double balance, z;  // balance: aux E / sum of counts

  RouterLoss(const Launch& launch, Values tokens)
      : by_sigmoid(launch.call->bool_attr("sigmoid")),
        counts(std::move(tokens)),
        balance(launch.call->double_attr("aux") * static_cast<double>(counts.size()) /
                std::accumulate(counts.begin(), counts.end(), 0.0)),
        z(launch.call->double_attr("z")) {}

  // What the scores of all experts are divided by.
  double score_sum(const Values& scores) const {
    return std::accumulate(scores.begin(), scores.end(), by_sigmoid ? 1e-20 : 0.0);
  }
  // The mean of the counts by the shares of the experts in the scores.
  double mean_count(const Values& scores) const {
    return std::inner_product(scores.begin(), scores.end(), counts.begin(), 0.0) /
           score_sum(scores);
  }
};

// Rows [sources,parts,slots] and the tokens [batch,time] that are sent to them.
struct Rows {
  size_t tokens_per_source, rows_per_source;

  Rows(const Shape& rows, const Shape& at)
      : tokens_per_source(static_cast<size_t>(row_count(at) / rows[0])),
        rows_per_source(static_cast<size_t>(rows[1] * rows[2])) {}

  // The row of a choice of a token among all rows.
  size_t of(size_t token, int32_t at) const {
    return token / tokens_per_source * rows_per_source + static_cast<size_t>(at);
  }
};

// Calls `visit(token, choice, row)` for every choice that has a row.
void for_each_row(const Shape& rows, const Tensor& at_tensor,
                  const std::function<void(size_t, size_t, size_t)>& visit) {
  const Indices at = read_ints(at_tensor);
  const auto choices = static_cast<size_t>(row_length(at_tensor));
  const Rows places(rows, at_tensor.shape);
  for (size_t i = 0; i < at.size(); ++i) {
    if (at[i] >= 0) visit(i / choices, i, places.of(i / choices, at[i]));
  }
}

// Calls `visit(expert, first row, end)` for every source and expert, rows counted among all rows.
void for_each_group(const Tensor& rows, const Tensor& offsets_tensor,
                    const std::function<void(size_t, size_t, size_t)>& visit) {
  const Indices offsets = read_ints(offsets_tensor);
  const auto parts = static_cast<size_t>(rows.shape[1]), slots = static_cast<size_t>(rows.shape[2]);
  const auto entries = static_cast<size_t>(offsets_tensor.shape[2]);
  for (size_t block = 0; block < offsets.size() / entries; ++block) {
    for (size_t q = 0; q + 1 < entries; ++q) {
      const size_t expert = block % parts * (entries - 1) + q;
      const auto* range = offsets.data() + block * entries + q;
      visit(expert, block * slots + static_cast<size_t>(range[0]),
            block * slots + static_cast<size_t>(range[1]));
    }
  }
}

}  // namespace

void router(const Launch& launch) {
  const Values logits = read(launch.operands[0]);
  const auto experts = static_cast<size_t>(row_length(launch.operands[0]));
  const bool has_bias = launch.operands.size() > 1;
  const Values bias = has_bias ? read(launch.operands[1]) : Values(experts, 0.0);
  const bool by_sigmoid = launch.call->bool_attr("sigmoid");
  const size_t groups = size_attr(launch, "groups");
  const double scale = launch.call->double_attr("scale");
  auto* index = launch.results[1].as<int32_t>();
  Values weights;
  for (size_t token = 0; token < logits.size() / experts; ++token) {
    const Values own = row_of(logits, token, experts);
    const Values scores = scores_of(own, by_sigmoid);
    // Scores keep the order of the logits, but may round to equal numbers.
    Values ranked = has_bias || groups > 1 ? scores : own;
    for (size_t i = 0; i < experts; ++i) ranked[i] += bias[i];
    if (groups > 1) ranked = close_groups(ranked, groups, size_attr(launch, "keep_groups"));
    const std::vector<size_t> chosen = best(ranked, size_attr(launch, "top_k"));
    const double sum =
        launch.call->bool_attr("normalize") ? weight_sum(scores, chosen, by_sigmoid) : 1;
    for (const size_t expert : chosen) {
      *index++ = static_cast<int32_t>(expert);
      weights.push_back(scale * scores[expert] / sum);
    }
  }
  write(launch.results[0], weights);
}

void router_grad(const Launch& launch) {
  const Values d_weights = read(launch.operands[0]), logits = read(launch.operands[1]);
  const Indices index = read_ints(launch.operands[2]);
  const auto experts = static_cast<size_t>(row_length(launch.operands[1]));
  const auto top_k = static_cast<size_t>(row_length(launch.operands[2]));
  const bool by_sigmoid = launch.call->bool_attr("sigmoid");
  const bool normalize = launch.call->bool_attr("normalize");
  const double scale = launch.call->double_attr("scale");
  Values d_logits(logits.size(), 0.0);
  for (size_t token = 0; token < logits.size() / experts; ++token) {
    const Values scores = scores_of(row_of(logits, token, experts), by_sigmoid);
    const auto first = index.begin() + static_cast<std::ptrdiff_t>(token * top_k);
    const std::vector<size_t> chosen(first, first + static_cast<std::ptrdiff_t>(top_k));
    const double sum = normalize ? weight_sum(scores, chosen, by_sigmoid) : 1;
    Values d_scores(experts, 0.0);
    double mean = 0;  // of the gradients of the weights, by their share
    for (size_t j = 0; j < top_k; ++j) {
      mean += d_weights[token * top_k + j] * scores[chosen[j]] / sum;
    }
    for (size_t j = 0; j < top_k; ++j) {
      const double own = d_weights[token * top_k + j] - (normalize ? mean : 0);
      d_scores[chosen[j]] = scale * own / sum;
    }
    double dot = 0;
    for (size_t i = 0; i < experts; ++i) dot += d_scores[i] * scores[i];
    for (size_t i = 0; i < experts; ++i) {
      const double slope = by_sigmoid ? d_scores[i] * (1 - scores[i]) : d_scores[i] - dot;
      d_logits[token * experts + i] = scores[i] * slope;
    }
  }
  write(launch.results[0], d_logits);
}

void route(const Launch& launch) {
  const Indices index = read_ints(launch.operands[0]);
  const size_t sources = size_attr(launch, "sources"), parts = size_attr(launch, "parts");
  const size_t slots = size_attr(launch, "slots");
  const size_t experts = size_attr(launch, "experts"), local = experts / parts;
  const size_t choices = index.size() / sources;
  auto* offsets = launch.results[0].as<int32_t>();
  auto* at = launch.results[1].as<int32_t>();
  for (size_t source = 0; source < sources; ++source) {
    for (size_t part = 0; part < parts; ++part) {
      size_t row = 0;
      *offsets++ = 0;
      for (size_t expert = part * local; expert < (part + 1) * local; ++expert) {
        for (size_t i = source * choices; i < (source + 1) * choices; ++i) {
          if (static_cast<size_t>(index[i]) != expert) continue;
          at[i] = row < slots ? static_cast<int32_t>(part * slots + row) : -1;
          ++row;
        }
        *offsets++ = static_cast<int32_t>(std::min(row, slots));
      }
    }
  }
}

void expert_counts(const Launch& launch) {
  const size_t experts = size_attr(launch, "experts");
  Values counts(launch.operands.size() * experts, 0.0);
  for (size_t layer = 0; layer < launch.operands.size(); ++layer) {
    for (const int32_t expert : read_ints(launch.operands[layer])) {
      ++counts[layer * experts + static_cast<size_t>(expert)];
    }
  }
  write(launch.results[0], counts);
}

void lost_rows(const Launch& launch) {
  Values rows;
  for (const Tensor& operand : launch.operands) {
    const Indices at = read_ints(operand);
    rows.push_back(static_cast<double>(std::count(at.begin(), at.end(), -1)));
  }
  write(launch.results[0], rows);
}

void guard_norm(const Launch& launch) {
  const Values lost = read(launch.operands[1]);
  const bool any = std::any_of(lost.begin(), lost.end(), [](double rows) { return rows > 0; });
  write(launch.results[0], {any ? -1 : read(launch.operands[0])[0]});
}

void balance_router(const Launch& launch) {
  const Values counts = read(launch.operands[0]);
  if (read(launch.operands[1])[0] == 0) return;
  const auto experts = static_cast<size_t>(row_length(launch.operands[0]));
  const double rate = launch.call->double_attr("rate");
  for (size_t layer = 0; layer < launch.results.size(); ++layer) {
    const Values own = row_of(counts, layer, experts);
    const double mean = std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(experts);
    Values bias = read(launch.results[layer]);
    for (size_t i = 0; i < experts; ++i) {
      bias[i] += own[i] < mean ? rate : own[i] > mean ? -rate : 0;
    }
    write(launch.results[layer], bias);
  }
}

void router_loss(const Launch& launch) {
  const Values logits = read(launch.operands[0]);
  const RouterLoss loss(launch, read(launch.operands[1]));
  const double count = read(launch.operands[2])[0];
  double sum = 0;
  Values lse;
  for (size_t token = 0; token < logits.size() / loss.counts.size(); ++token) {
    const Values own = row_of(logits, token, loss.counts.size());
    lse.push_back(log_sum_exp(own));
    sum += loss.balance * loss.mean_count(scores_of(own, loss.by_sigmoid)) +
           loss.z * lse.back() * lse.back();
  }
  write(launch.results[0], {sum / count});
  write(launch.results[1], lse);
}

void router_loss_grad(const Launch& launch) {
  const double dloss = read(launch.operands[0])[0];
  const Values logits = read(launch.operands[1]), lse = read(launch.operands[3]);
  const RouterLoss loss(launch, read(launch.operands[2]));
  const double factor = dloss / read(launch.operands[4])[0];
  Values d_logits;
  for (size_t token = 0; token < lse.size(); ++token) {
    const Values own = row_of(logits, token, loss.counts.size());
    const Values scores = scores_of(own, loss.by_sigmoid);
    const double mean = loss.mean_count(scores), sum = loss.score_sum(scores);
    for (size_t i = 0; i < own.size(); ++i) {
      const double slope = loss.by_sigmoid ? scores[i] * (1 - scores[i]) / sum : scores[i];
      const double exponential = std::exp(own[i] - lse[token]);
      d_logits.push_back(factor * (loss.balance * slope * (loss.counts[i] - mean) +
                                   2 * loss.z * lse[token] * exponential));
    }
  }
  write(launch.results[0], d_logits);
}

void dispatch(const Launch& launch) {
  const Values x = read(launch.operands[0]);
  const auto length = static_cast<size_t>(row_length(launch.operands[0]));
  Values rows = read(launch.results[0]);
  for_each_row(launch.results[0].shape, launch.operands[1], [&](size_t token, size_t, size_t row) {
    std::copy_n(x.data() + token * length, length, rows.data() + row * length);
  });
  write(launch.results[0], rows);
}

void combine(const Launch& launch) {
  const Values rows = read(launch.operands[0]);
  const auto length = static_cast<size_t>(row_length(launch.operands[0]));
  Values y(static_cast<size_t>(launch.results[0].elements()), 0.0);
  for_each_row(launch.operands[0].shape, launch.operands[1], [&](size_t token, size_t, size_t row) {
    for (size_t i = 0; i < length; ++i) {
      y[token * length + i] += rows[row * length + i];
    }
  });
  write(launch.results[0], y);
}

void dispatch_weights(const Launch& launch) {
  const Values weights = read(launch.operands[0]);
  Values rows = read(launch.results[0]);
  for_each_row(launch.results[0].shape, launch.operands[1],
               [&](size_t, size_t choice, size_t row) { rows[row] = weights[choice]; });
  write(launch.results[0], rows);
}

void combine_weights(const Launch& launch) {
  const Values rows = read(launch.operands[0]);
  Values weights(static_cast<size_t>(launch.results[0].elements()), 0.0);
  for_each_row(launch.operands[0].shape, launch.operands[1],
               [&](size_t, size_t choice, size_t row) { weights[choice] = rows[row]; });
  write(launch.results[0], weights);
}

void grouped_matmul(const Launch& launch) {
  const Values rows = read(launch.operands[0]), w = read(launch.operands[2]);
  const bool tb = launch.call->bool_attr("tb");
  const auto k = static_cast<size_t>(row_length(launch.operands[0]));
  const auto n = static_cast<size_t>(row_length(launch.results[0]));
  Values y = read(launch.results[0]);
  for_each_group(launch.operands[0], launch.operands[1],
                 [&](size_t expert, size_t first, size_t end) {
                   const double* own = w.data() + expert * k * n;
                   for (size_t row = first; row < end; ++row) {
                     for (size_t c = 0; c < n; ++c) {
                       double sum = 0;
                       for (size_t i = 0; i < k; ++i) {
                         sum += rows[row * k + i] * own[tb ? c * k + i : i * n + c];
                       }
                       y[row * n + c] = sum;
                     }
                   }
                 });
  write(launch.results[0], y);
}

void grouped_matmul_grad_w(const Launch& launch) {
  const Values a = read(launch.operands[0]), b = read(launch.operands[1]);
  const auto m = static_cast<size_t>(row_length(launch.operands[0]));
  const auto n = static_cast<size_t>(row_length(launch.operands[1]));
  Values dw(static_cast<size_t>(launch.results[0].elements()), 0.0);
  for_each_group(launch.operands[0], launch.operands[2],
                 [&](size_t expert, size_t first, size_t end) {
                   for (size_t row = first; row < end; ++row) {
                     for (size_t i = 0; i < m; ++i) {
                       for (size_t c = 0; c < n; ++c) {
                         dw[(expert * m + i) * n + c] += a[row * m + i] * b[row * n + c];
                       }
                     }
                   }
                 });
  write(launch.results[0], dw);
}

void weighted_swiglu(const Launch& launch) {
  const Values x = read(launch.operands[0]), w = read(launch.operands[2]);
  const auto f = static_cast<size_t>(row_length(launch.results[0]));
  Values y = read(launch.results[0]);
  for_each_group(launch.operands[0], launch.operands[1], [&](size_t, size_t first, size_t end) {
    for (size_t row = first; row < end; ++row) {
      for (size_t i = 0; i < f; ++i) {
        const double gate = x[row * 2 * f + i], up = x[row * 2 * f + f + i];
        y[row * f + i] = w[row] * gate * sigmoid(gate) * up;
      }
    }
  });
  write(launch.results[0], y);
}

void weighted_swiglu_grad(const Launch& launch) {
  const Values dy = read(launch.operands[0]), x = read(launch.operands[1]);
  const Values w = read(launch.operands[3]);
  const auto f = static_cast<size_t>(row_length(launch.operands[0]));
  Values dx = read(launch.results[0]), dw = read(launch.results[1]);
  for_each_group(launch.operands[1], launch.operands[2], [&](size_t, size_t first, size_t end) {
    for (size_t row = first; row < end; ++row) {
      dw[row] = 0;
      for (size_t i = 0; i < f; ++i) {
        const double gate = x[row * 2 * f + i], up = x[row * 2 * f + f + i];
        const double s = sigmoid(gate), d = dy[row * f + i];
        dw[row] += d * gate * s * up;
        dx[row * 2 * f + i] = w[row] * d * up * s * (1 + gate * (1 - s));
        dx[row * 2 * f + f + i] = w[row] * d * gate * s;
      }
    }
  });
  write(launch.results[0], dx);
  write(launch.results[1], dw);
}

void scale_rows(const Launch& launch) {
  Values x = read(launch.operands[0]);
  const Values w = read(launch.operands[1]);
  const size_t length = x.size() / w.size();
  for (size_t i = 0; i < x.size(); ++i) x[i] *= w[i / length];
  write(launch.results[0], x);
}

void scale_rows_grad(const Launch& launch) {
  Values dx = read(launch.operands[0]);
  const Values x = read(launch.operands[1]), w = read(launch.operands[2]);
  const size_t length = x.size() / w.size();
  Values dw(w.size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    dw[i / length] += dx[i] * x[i];
    dx[i] *= w[i / length];
  }
  write(launch.results[0], dx);
  write(launch.results[1], dw);
}

}  // namespace weft::reference
