#include "train/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"

namespace weft {
namespace {

double sum_of(const std::vector<int64_t>& tokens) {
  return static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
}

double entropy_of(const std::vector<int64_t>& tokens) {
  const double sum = sum_of(tokens);
  double entropy = 0;
  for (const int64_t count : tokens) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / sum;
    entropy -= share * std::log(share);
  }
  return tokens.size() < 2 ? 1 : entropy / std::log(static_cast<double>(tokens.size()));
}

}  // namespace

double ExpertLoad::largest() const {
  double largest = 0;
  for (const auto& layer : tokens) {
    const auto most = static_cast<double>(*std::max_element(layer.begin(), layer.end()));
    const double sum = sum_of(layer);
    if (sum > 0) largest = std::max(largest, most * static_cast<double>(layer.size()) / sum);
  }
  return largest;
}

int64_t ExpertLoad::idle() const {
  int64_t idle = 0;
  for (const auto& layer : tokens) idle += std::count(layer.begin(), layer.end(), 0);
  return idle;
}

double ExpertLoad::entropy() const {
  double sum = 0;
  for (const auto& layer : tokens) sum += entropy_of(layer);
  return sum / static_cast<double>(std::max<size_t>(tokens.size(), 1));
}

std::string to_json(const ExpertLoad& load) {
  std::vector<std::string> layers;
  for (const auto& layer : load.tokens) {
    std::vector<std::string> counts;
    for (const int64_t count : layer) counts.push_back(cat(count));
    layers.push_back(cat("[", join(counts, ","), "]"));
  }
  return cat("{\"load\":", format_double(load.largest()), ",\"idle\":", load.idle(),
             ",\"entropy\":", format_double(load.entropy()), ",\"lost\":", load.lost,
             ",\"replayed\":", load.replayed ? "true" : "false", ",\"tokens\":[", join(layers, ","),
             "]}");
}

}  // namespace weft
