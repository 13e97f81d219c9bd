// Which experts a token goes to, and where its rows lie among theirs; the losses of routers.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kClosed = std::numeric_limits<int64_t>::min();

// What a thread needs for one token.
struct Token {
  std::array<float, kMaxExperts> scores;
  std::array<double, kMaxExperts> values;
  std::array<int64_t, kMaxExperts> ranks;
};

struct Weighting {
  bool by_sigmoid, normalize;
  float scale;

  explicit Weighting(const Call& call)
      : by_sigmoid(call.bool_attr("sigmoid")),
        normalize(call.bool_attr("normalize")),
        scale(static_cast<float>(call.double_attr("scale"))) {}

  // What the scores of the chosen are divided by.
  float divisor(const float* scores, const int32_t* chosen, int64_t count) const {
    if (!normalize) return 1;
    float sum = by_sigmoid ? 1e-20f : 0.0f;
    for (int64_t i = 0; i < count; ++i) sum += scores[chosen[i]];
    return sum;
  }
};

WEFT_CLONES void sigmoids(const float* x, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = sigmoid_f32(x[i]);
}

// Returns the log of the sum of exponentials.
WEFT_CLONES float softmax(const float* x, int64_t n, float* y) {
  const float top = lane_max(x, n);
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = exp_f32(x[i] - top);
  const float sum = lane_sum(
      n, [&](int64_t i) { return lanes_at(y + i); }, [&](int64_t i) { return y[i]; });
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] /= sum;
  return top + std::log(sum);
}

void scores_of(const float* logits, int64_t n, bool by_sigmoid, float* scores) {
  if (by_sigmoid) {
    sigmoids(logits, n, scores);
  } else {
    softmax(logits, n, scores);
  }
}

// The same in f64, for choices that depend on more than the order of the logits: so they are the
// same as those of any backend up to ties of f64.
void exact_scores(const float* logits, int64_t n, bool by_sigmoid, double* scores) {
  if (by_sigmoid) {
    for (int64_t i = 0; i < n; ++i) scores[i] = 1 / (1 + std::exp(-static_cast<double>(logits[i])));
    return;
  }
  const double top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += scores[i] = std::exp(logits[i] - top);
  for (int64_t i = 0; i < n; ++i) scores[i] /= sum;
}

// Numbers in the order of the values, above kClosed; zeros of both signs are equal, NaNs lowest.
WEFT_CLONES void rank_values(const double* values, int64_t n, int64_t* ranks) {
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<int64_t>(values[i] + 0.0);
    const int64_t rank = bits < 0 ? bits ^ std::numeric_limits<int64_t>::max() : bits;
    ranks[i] = values[i] == values[i] ? rank : kClosed + 1;
  }
}

WEFT_CLONES int64_t largest(const int64_t* ranks, int64_t n) {
  int64_t top = kClosed;
  for (int64_t i = 0; i < n; ++i) top = ranks[i] > top ? ranks[i] : top;
  return top;
}

// Closes the highest of n ranks, the first of equal ones, and returns its index.
int64_t take_best(int64_t* ranks, int64_t n) {
  const int64_t best = std::find(ranks, ranks + n, largest(ranks, n)) - ranks;
  ranks[best] = kClosed;
  return best;
}

// Closes the experts of all but the `kept` groups with the largest sums of two values.
void close_groups(const double* values, int64_t experts, int64_t groups, int64_t kept,
                  int64_t* ranks) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const int64_t size = experts / groups;
  std::array<double, kMaxExperts> sums;
  for (int64_t group = 0; group < groups; ++group) {
    double first = kLowest, second = kLowest;
    for (int64_t i = group * size; i < (group + 1) * size; ++i) {
      second = std::max(second, std::min(first, values[i]));
      first = std::max(first, values[i]);
    }
    sums[static_cast<size_t>(group)] = size > 1 ? first + second : first;
  }
  std::array<int64_t, kMaxExperts> order;
  rank_values(sums.data(), groups, order.data());
  for (int64_t i = 0; i < kept; ++i) take_best(order.data(), groups);
  for (int64_t group = 0; group < groups; ++group) {
    if (order[static_cast<size_t>(group)] == kClosed) continue;
    std::fill_n(ranks + group * size, size, kClosed);
  }
}

// Tokens per tile.
int64_t token_step(int64_t experts) {
  return std::max<int64_t>(tile_rows(experts) / 8, 1);
}

void launch_router(const Launch& launch) {
  const float* logits = launch.operands.at(0).as<float>();
  const float* bias = launch.operands.size() > 1 ? launch.operands[1].as<float>() : nullptr;
  float* weights = launch.results.at(0).as<float>();
  int32_t* index = launch.results.at(1).as<int32_t>();
  const int64_t tokens = row_count(launch.operands[0]), experts = row_length(launch.operands[0]);
  const int64_t top_k = row_length(launch.results[1]);
  const int64_t groups = launch.call->int_attr("groups");
  const int64_t kept = launch.call->int_attr("keep_groups");
  const Weighting weighting(*launch.call);
  const auto rank = [&](const float* own, Token& token) {
    double* values = token.values.data();
    if (bias == nullptr && groups == 1) {
      // Scores keep the order of the logits, but may round to equal numbers.
      std::copy_n(own, experts, values);
    } else {
      exact_scores(own, experts, weighting.by_sigmoid, values);
    }
    for (int64_t i = 0; bias != nullptr && i < experts; ++i) values[i] += bias[i];
    rank_values(values, experts, token.ranks.data());
    if (groups > 1) close_groups(values, experts, groups, kept, token.ranks.data());
  };
  const int64_t step = token_step(experts);
  team(launch).run(ceil_div(tokens, step), [&](int64_t tile) {
    Token token;
    for (int64_t t = tile * step; t < std::min(tokens, (tile + 1) * step); ++t) {
      const float* own = logits + t * experts;
      int32_t* chosen = index + t * top_k;
      rank(own, token);
      for (int64_t i = 0; i < top_k; ++i) {
        chosen[i] = static_cast<int32_t>(take_best(token.ranks.data(), experts));
      }
      float* scores = token.scores.data();
      scores_of(own, experts, weighting.by_sigmoid, scores);
      const float divisor = weighting.divisor(scores, chosen, top_k);
      for (int64_t i = 0; i < top_k; ++i) {
        weights[t * top_k + i] = weighting.scale * scores[chosen[i]] / divisor;
      }
    }
  });
}

// d_logits of the gradients of scores, which it overwrites; `dot` is their sum over the scores.
WEFT_CLONES void sigmoid_slopes(const float* scores, int64_t n, float* d) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) d[i] *= scores[i] * (1.0f - scores[i]);
}
WEFT_CLONES void softmax_slopes(const float* scores, float dot, int64_t n, float* d) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) d[i] = scores[i] * (d[i] - dot);
}

void launch_router_grad(const Launch& launch) {
  const float* d_weights = launch.operands.at(0).as<float>();
  const float* logits = launch.operands.at(1).as<float>();
  const int32_t* index = launch.operands.at(2).as<int32_t>();
  float* d_logits = launch.results.at(0).as<float>();
  const int64_t tokens = row_count(launch.operands[1]), experts = row_length(launch.operands[1]);
  const int64_t top_k = row_length(launch.operands[2]);
  const Weighting weighting(*launch.call);
  const int64_t step = token_step(experts);
  team(launch).run(ceil_div(tokens, step), [&](int64_t tile) {
    std::array<float, kMaxExperts> memory;
    float* scores = memory.data();
    for (int64_t t = tile * step; t < std::min(tokens, (tile + 1) * step); ++t) {
      const int32_t* chosen = index + t * top_k;
      const float* own = d_weights + t * top_k;
      float* d = d_logits + t * experts;
      scores_of(logits + t * experts, experts, weighting.by_sigmoid, scores);
      const float divisor = weighting.divisor(scores, chosen, top_k);
      float mean = 0;  // of the gradients of the weights, by their share
      for (int64_t i = 0; i < top_k; ++i) mean += own[i] * (scores[chosen[i]] / divisor);
      std::fill_n(d, experts, 0.0f);
      for (int64_t i = 0; i < top_k; ++i) {
        d[chosen[i]] = weighting.scale * (own[i] - (weighting.normalize ? mean : 0)) / divisor;
      }
      if (weighting.by_sigmoid) {
        sigmoid_slopes(scores, experts, d);
      } else {
        // Shares of a sum do not change if all scores do.
        const float dot = weighting.normalize ? 0.0f : weighting.scale * mean;
        softmax_slopes(scores, dot, experts, d);
      }
    }
  });
}

Decision supports_experts(const Call& call) {
  const int64_t experts = row_length(call.type("logits"));
  if (experts > kMaxExperts) {
    return Decision::no(cat("takes up to ", kMaxExperts, " experts, found ", experts));
  }
  return supports_cpu_dtypes(call);
}

// Every thread counts and places the choices of a source.
void launch_route(const Launch& launch) {
  const Call& call = *launch.call;
  const int64_t sources = call.int_attr("sources"), parts = call.int_attr("parts");
  const int64_t experts = call.int_attr("experts"), per_part = experts / parts;
  const int64_t slots = call.int_attr("slots");
  const int64_t choices = launch.operands.at(0).elements() / sources;
  team(launch).run(sources, [&](int64_t source) {
    const int32_t* index = launch.operands[0].as<int32_t>() + source * choices;
    int32_t* offsets = launch.results.at(0).as<int32_t>() + source * parts * (per_part + 1);
    int32_t* at = launch.results.at(1).as<int32_t>() + source * choices;
    int32_t* next = static_cast<int32_t*>(launch.workspace) + source * experts;
    std::fill_n(next, experts, 0);
    for (int64_t i = 0; i < choices; ++i) ++next[index[i]];
    for (int64_t part = 0; part < parts; ++part) {
      int64_t row = 0;
      *offsets++ = 0;
      for (int32_t* own = next + part * per_part; own < next + (part + 1) * per_part; ++own) {
        const int32_t count = *own;
        *own = static_cast<int32_t>(row);  // where its next choice goes
        row += count;
        *offsets++ = static_cast<int32_t>(std::min(row, slots));
      }
    }
    for (int64_t i = 0; i < choices; ++i) {
      const int64_t row = next[index[i]]++;
      at[i] = row < slots ? static_cast<int32_t>(index[i] / per_part * slots + row) : -1;
    }
  });
}

int64_t route_workspace(const Call& call) {
  return call.int_attr("sources") * call.int_attr("experts") *
         static_cast<int64_t>(sizeof(int32_t));
}

void launch_expert_counts(const Launch& launch) {
  const int64_t experts = launch.call->int_attr("experts");
  team(launch).run(std::ssize(launch.operands), [&](int64_t layer) {
    const Tensor& index = launch.operands[static_cast<size_t>(layer)];
    float* counts = launch.results.at(0).as<float>() + layer * experts;
    std::fill_n(counts, experts, 0.0f);
    for (int64_t i = 0; i < index.elements(); ++i) counts[index.as<int32_t>()[i]] += 1.0f;
  });
}

void launch_lost_rows(const Launch& launch) {
  team(launch).run(std::ssize(launch.operands), [&](int64_t layer) {
    const Tensor& at = launch.operands[static_cast<size_t>(layer)];
    const auto lost = std::count(at.as<int32_t>(), at.as<int32_t>() + at.elements(), -1);
    launch.results.at(0).as<float>()[layer] = static_cast<float>(lost);
  });
}

void launch_guard_norm(const Launch& launch) {
  const Tensor& lost = launch.operands.at(1);
  const bool any = std::any_of(lost.as<float>(), lost.as<float>() + lost.elements(),
                               [](float rows) { return rows > 0; });
  launch.results.at(0).as<float>()[0] = any ? -1 : launch.operands[0].as<float>()[0];
}

void launch_balance_router(const Launch& launch) {
  if (launch.operands.at(1).as<float>()[0] == 0) return;
  const int64_t experts = row_length(launch.operands[0]);
  const float rate = static_cast<float>(launch.call->double_attr("rate"));
  for (int64_t layer = 0; layer < std::ssize(launch.results); ++layer) {
    const float* counts = launch.operands[0].as<float>() + layer * experts;
    float* bias = launch.results[static_cast<size_t>(layer)].as<float>();
    double sum = 0;
    for (int64_t i = 0; i < experts; ++i) sum += counts[i];
    const double mean = sum / static_cast<double>(experts);
    for (int64_t i = 0; i < experts; ++i) {
      bias[i] += counts[i] < mean ? rate : counts[i] > mean ? -rate : 0.0f;
    }
  }
}

WEFT_CLONES float sum_of(const float* x, int64_t n) {
  return lane_sum(
      n, [&](int64_t i) { return lanes_at(x + i); }, [&](int64_t i) { return x[i]; });
}

// The losses of a router, with what is the same for all tokens.
struct RouterLoss {
  const float* counts;
  int64_t experts;
  bool by_sigmoid;
  float balance, z;  // balance: aux * experts / sum of counts

  RouterLoss(const Call& call, const Tensor& tokens)
      : counts(tokens.as<float>()),
        experts(row_length(tokens)),
        by_sigmoid(call.bool_attr("sigmoid")),
        z(static_cast<float>(call.double_attr("z"))) {
    double sum = 0;
    for (int64_t i = 0; i < experts; ++i) sum += counts[i];
    balance = static_cast<float>(call.double_attr("aux") * static_cast<double>(experts) / sum);
  }

  // What the scores of all experts are divided by.
  float divisor(const float* scores) const {
    return by_sigmoid ? 1e-20f + sum_of(scores, experts) : 1.0f;
  }
};

void launch_router_loss(const Launch& launch) {
  const RouterLoss loss(*launch.call, launch.operands.at(1));
  const float* logits = launch.operands.at(0).as<float>();
  float* lse = launch.results.at(1).as<float>();
  float* losses = static_cast<float*>(launch.workspace);
  const int64_t tokens = row_count(launch.operands[0]), step = token_step(loss.experts);
  team(launch).run(ceil_div(tokens, step), [&](int64_t tile) {
    std::array<float, kMaxExperts> memory;
    float* scores = memory.data();
    for (int64_t t = tile * step; t < std::min(tokens, (tile + 1) * step); ++t) {
      const float* own = logits + t * loss.experts;
      lse[t] = softmax(own, loss.experts, scores);
      if (loss.by_sigmoid) sigmoids(own, loss.experts, scores);
      const float mean = dot_rows(loss.counts, scores, loss.experts) / loss.divisor(scores);
      losses[t] = loss.balance * mean + loss.z * lse[t] * lse[t];
    }
  });
  *launch.results.at(0).as<float>() = tree_sum(losses, tokens) / scalar_f32(launch.operands.at(2));
}

// d = exp(x - lse) * scale, the gradient of the z-loss.
WEFT_CLONES void exponentials(const float* x, float lse, float scale, int64_t n, float* d) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) d[i] = exp_f32(x[i] - lse) * scale;
}

// d += slope of the score * (counts - mean) * scale, the gradient of the auxiliary loss.
WEFT_CLONES void add_softmax_balance(const float* scores, const float* counts, float mean,
                                     float scale, int64_t n, float* d) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) d[i] += scores[i] * (counts[i] - mean) * scale;
}
WEFT_CLONES void add_sigmoid_balance(const float* scores, const float* counts, float mean,
                                     float scale, int64_t n, float* d) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    d[i] += scores[i] * (1.0f - scores[i]) * (counts[i] - mean) * scale;
  }
}

void launch_router_loss_grad(const Launch& launch) {
  const RouterLoss loss(*launch.call, launch.operands.at(2));
  const float factor = scalar_f32(launch.operands.at(0)) / scalar_f32(launch.operands.at(4));
  const float* logits = launch.operands.at(1).as<float>();
  const float* lse = launch.operands.at(3).as<float>();
  float* d_logits = launch.results.at(0).as<float>();
  const int64_t tokens = row_count(launch.operands[1]), experts = loss.experts;
  const int64_t step = token_step(experts);
  team(launch).run(ceil_div(tokens, step), [&](int64_t tile) {
    std::array<float, kMaxExperts> memory;
    float* scores = memory.data();
    for (int64_t t = tile * step; t < std::min(tokens, (tile + 1) * step); ++t) {
      const float* own = logits + t * experts;
      float* d = d_logits + t * experts;
      scores_of(own, experts, loss.by_sigmoid, scores);
      const float divisor = loss.divisor(scores);
      const float mean = dot_rows(loss.counts, scores, experts) / divisor;
      exponentials(own, lse[t], 2 * loss.z * lse[t] * factor, experts, d);
      (loss.by_sigmoid ? add_sigmoid_balance : add_softmax_balance)(
          scores, loss.counts, mean, loss.balance / divisor * factor, experts, d);
    }
  });
}

int64_t router_loss_workspace(const Call& call) {
  return row_count(call.type("logits").shape) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

std::span<const Kernel> cpu_router_kernels() {
  static const Kernel rows[] = {
      {"router", "rows", supports_experts, nullptr, launch_router},
      {"router_grad", "rows", supports_experts, nullptr, launch_router_grad},
      {"route", "counts", supports_cpu_dtypes, route_workspace, launch_route},
      {"expert_counts", "counts", supports_cpu_dtypes, nullptr, launch_expert_counts},
      {"lost_rows", "counts", supports_cpu_dtypes, nullptr, launch_lost_rows},
      {"guard_norm", "scalar", supports_cpu_dtypes, nullptr, launch_guard_norm},
      {"balance_router", "layers", supports_cpu_dtypes, nullptr, launch_balance_router},
      {"router_loss", "rows", supports_experts, router_loss_workspace, launch_router_loss},
      {"router_loss_grad", "rows", supports_experts, nullptr, launch_router_loss_grad},
  };
  return rows;
}

}  // namespace weft
