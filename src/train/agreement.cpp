// Compares hashes first, and texts line by line only when hashes differ.
#include "train/agreement.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "config/schema.h"
#include "plan/text.h"
#include "train/exchange_text.h"

namespace weft {
namespace {

constexpr size_t kMaxKeys = 3;     // differing keys to report
constexpr size_t kMaxShown = 120;  // characters of a line

// The number of every rank, in rank order.
std::vector<uint64_t> all_of(Communicator& comm, uint64_t own) {
  std::vector<uint64_t> all(static_cast<size_t>(comm.ranks()));
  comm.exchange(std::span(reinterpret_cast<const char*>(&own), sizeof own),
                std::span(reinterpret_cast<char*>(all.data()), all.size() * sizeof own));
  return all;
}

// The first rank whose number differs from rank 0's.
std::optional<size_t> first_other(const std::vector<uint64_t>& all) {
  const auto other =
      std::find_if(all.begin(), all.end(), [&](uint64_t number) { return number != all[0]; });
  if (other == all.end()) return std::nullopt;
  return static_cast<size_t>(other - all.begin());
}

struct Difference {
  size_t line = 0;
  size_t rank = 0;  // the first one that differs from rank 0
  std::string own;
  std::string first;  // of rank 0
};

// Up to `most` lines that differ between ranks.
std::vector<Difference> differences(Communicator& comm, const std::vector<std::string>& lines,
                                    size_t most) {
  std::vector<Difference> found;
  const std::vector<uint64_t> counts = all_of(comm, lines.size());
  const uint64_t count = *std::max_element(counts.begin(), counts.end());
  for (uint64_t i = 0; i < count && found.size() < most; ++i) {
    const std::string line = i < lines.size() ? lines[i] : "";
    const auto other = first_other(all_of(comm, hash_text(line)));
    if (!other) continue;
    const std::vector<std::string> texts = exchange_texts(comm, line);
    found.push_back({i + 1, *other, texts[*other], texts[0]});
  }
  return found;
}

std::vector<std::string> key_lines(const Config& config) {
  std::vector<std::string> lines;
  for (const Key<Config>& key : config_keys()) {
    const ConfigValue value = key.get(config);
    const bool unset = std::holds_alternative<std::monostate>(value);
    lines.push_back(cat(key.name, unset ? " unset" : cat(" = ", value_to_toml(value))));
  }
  return lines;
}

// The text from just before the first differing character.
std::string shown(const std::string& text, const std::string& other) {
  const auto [at, end] = std::mismatch(text.begin(), text.end(), other.begin(), other.end());
  const auto differs = static_cast<size_t>(at - text.begin());
  const size_t begin = differs < kMaxShown / 2 ? 0 : differs - kMaxShown / 2;
  const std::string part = text.substr(begin, kMaxShown);
  return cat(begin > 0 ? "..." : "", part, begin + part.size() < text.size() ? "..." : "");
}

}  // namespace

void check_agreement(const Config& config, const Plan& plan, Communicator& comm) {
  if (comm.ranks() == 1) return;
  const std::vector<std::string> keys = key_lines(config);
  const bool plans_differ = first_other(all_of(comm, hash(plan))).has_value();
  const bool configs_differ = first_other(all_of(comm, hash_text(join(keys, "\n")))).has_value();
  if (!plans_differ && !configs_differ) return;
  std::vector<std::string> parts;
  for (const Difference& key : differences(comm, keys, kMaxKeys)) {
    parts.push_back(cat("rank ", key.rank, " has ", key.own, ", rank 0 has ", key.first));
  }
  if (plans_differ) {
    if (!configs_differ) parts.emplace_back("the configs are the same, so the builds differ");
    for (const Difference& line : differences(comm, split(print_plan(plan), '\n'), 1)) {
      parts.push_back(cat("line ", line.line, " of the plan is \"", shown(line.own, line.first),
                          "\" on rank ", line.rank, ", \"", shown(line.first, line.own),
                          "\" on rank 0"));
    }
  }
  throw UserError(ExitCode::Config,
                  cat("the ranks have different ", plans_differ ? "plans" : "configs", ": ",
                      join(parts, "; "), "; start every rank with the same config and build"));
}

}  // namespace weft
