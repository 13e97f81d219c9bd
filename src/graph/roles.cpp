// One table per kind of key gives the first part of the name and what follows it.
#include "graph/roles.h"

#include <optional>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "graph/names.h"

namespace weft {

namespace {

constexpr std::string_view kGradient = "grad";
constexpr std::string_view kLevel = "level";

struct StateText {
  StateRole role;
  std::string_view name;  // the start of the name, or all of it
  bool owned = false;     // ".OWNER" follows
  bool leveled = false;   // ".levelN" may come before that
};

constexpr StateText kStates[] = {
    {StateRole::FirstMoment, "m", true},
    {StateRole::SecondMoment, "v", true},
    {StateRole::LowCopy, "low", true},
    {StateRole::FullCopy, "full", true},
    {StateRole::GradientSum, kGradient, true, true},
    {StateRole::LossSum, names::kLoss, false, true},
    {StateRole::CountSum, "expert_counts.sum", false, true},
    {StateRole::LostSum, "lost_rows.sum", false, true},
    {StateRole::UpdateCount, "adam.count"},
    {StateRole::LossScale, names::kLossScale},
    {StateRole::GoodSteps, "loss_scale.good"},
};

struct OutputText {
  OutputRole role;
  std::string_view name;
  bool owned = false;
};

constexpr OutputText kOutputs[] = {
    {OutputRole::Loss, names::kLoss},
    {OutputRole::Logits, names::kLogits},
    {OutputRole::GradientNorm, names::kGradNorm},
    {OutputRole::ExpertCounts, names::kExpertCounts},
    {OutputRole::LostRows, names::kLostRows},
    {OutputRole::Gradient, kGradient, true},
};

template <class Text, class Role>
const Text& text_of(std::span<const Text> texts, Role role) {
  for (const Text& text : texts) {
    if (text.role == role) return text;
  }
  throw InternalError("unknown role");
}

// The text after "FIRST.", if there is any.
std::optional<std::string_view> after(std::string_view first, std::string_view name) {
  if (name.size() < first.size() + 2 || !name.starts_with(first) || name[first.size()] != '.') {
    return std::nullopt;
  }
  return name.substr(first.size() + 1);
}

// N for "levelN", as printed; otherwise -1.
int64_t parse_level(std::string_view text) {
  if (!text.starts_with(kLevel)) return -1;
  const int64_t level = parse_int(text.substr(kLevel.size())).value_or(-1);
  return level >= 0 && cat(kLevel, level) == text ? level : -1;
}

// The key if the name has this form.
std::optional<StateKey> read(const StateText& text, std::string_view name) {
  if (!text.owned && name == text.name) return StateKey{.role = text.role};
  const std::optional<std::string_view> rest = after(text.name, name);
  if (!rest) return std::nullopt;
  const std::string_view first = rest->substr(0, rest->find('.'));
  const int64_t level = text.leveled ? parse_level(first) : -1;
  if (!text.owned) {
    if (level < 0 || first != *rest) return std::nullopt;
    return StateKey{.role = text.role, .level = level};
  }
  const std::optional<std::string_view> owner = level < 0 ? rest : after(first, *rest);
  if (!owner) return StateKey{.role = text.role, .owner = std::string(*rest)};
  return StateKey{.role = text.role, .owner = std::string(*owner), .level = level};
}

}  // namespace

std::string to_string(const StateKey& key) {
  if (key.role == StateRole::Other) return key.owner;
  const StateText& text = text_of(std::span<const StateText>(kStates), key.role);
  CHECK(text.owned != key.owner.empty() && (text.leveled || key.level < 0), "a state \"", text.name,
        "\" of \"", key.owner, "\" on level ", key.level);
  std::string name(text.name);
  if (key.level >= 0) name += cat(".", kLevel, key.level);
  return text.owned ? cat(name, ".", key.owner) : name;
}

std::string owner_prefix(StateRole role) {
  return cat(text_of(std::span<const StateText>(kStates), role).name, ".");
}

StateKey parse_state_key(std::string_view name) {
  for (const StateText& text : kStates) {
    if (const std::optional<StateKey> key = read(text, name)) return *key;
  }
  return {.owner = std::string(name)};
}

std::string to_string(const OutputKey& key) {
  if (key.role == OutputRole::Other) return key.owner;
  const OutputText& text = text_of(std::span<const OutputText>(kOutputs), key.role);
  CHECK(text.owned != key.owner.empty(), "an output \"", text.name, "\" of \"", key.owner, "\"");
  return text.owned ? cat(text.name, ".", key.owner) : std::string(text.name);
}

OutputKey parse_output_key(std::string_view name) {
  for (const OutputText& text : kOutputs) {
    if (!text.owned && name == text.name) return {.role = text.role};
    const std::optional<std::string_view> owner =
        text.owned ? after(text.name, name) : std::nullopt;
    if (owner) return {.role = text.role, .owner = std::string(*owner)};
  }
  return {.owner = std::string(name)};
}

}  // namespace weft
