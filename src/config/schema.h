// The description of every config key, written once in schema*.cpp. Reading, checking, overriding,
// printing, the reference page and the detection of keys without effect are derived from it. A key
// is bound to a struct member by pointer, so config.h alone defines its type and default.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "config/choices.h"
#include "config/config.h"
#include "config/value.h"

namespace weft {

// When a key has an effect; `text` completes "it needs ...".
struct Condition {
  std::string_view text;
  bool (*holds)(const Config& config, int64_t ranks);
};

// What a schema line says about a key in addition to its name and member.
struct KeyOptions {
  std::string doc = {};
  Range range = {};
  std::vector<std::string> choices = {};      // of an enum: in the order of its enumerators
  std::string unset = {};                     // shown as the default of an optional key
  const Condition* effective_when = nullptr;  // null: always, except own keys of a model or backend
};

// One key of a struct `Root`.
template <class Root>
struct Key {
  std::string name;  // "training.steps"
  KeyOptions options;
  ValueRule rule;
  std::function<ConfigValue(const Root&)> get;
  std::function<void(Root&, const ConfigValue&)> set;
};

// A TOML section and what it configures.
struct Section {
  std::string name;
  std::string doc;
};

// All sections in printing order.
const std::vector<Section>& config_sections();

// Whether a section of that name exists.
bool is_config_section(std::string_view name);

// All keys, section by section.
const std::vector<Key<Config>>& config_keys();

// The key of that name, or null.
const Key<Config>* find_config_key(std::string_view name);

// Whether the key has an effect in a run of this config on `ranks` ranks.
bool has_effect(const Key<Config>& key, const Config& config, int64_t ranks,
                const ConfigChoices& sets);

// The condition that has_effect checks; completes "it needs ...". Empty: always has an effect.
std::string needs_phrase(const Key<Config>& key, const ConfigChoices& sets);

// Throws the UserError for an entry that matches no key, suggesting the nearest one.
[[noreturn]] void throw_unknown_key(const Entry& entry, const std::vector<std::string>& known);

// How a member type is stored in a ConfigValue.
template <class T>
struct ValueTraits;
template <>
struct ValueTraits<bool> {
  using Held = bool;
  static constexpr ValueType kType = ValueType::Bool;
};
template <>
struct ValueTraits<int64_t> {
  using Held = int64_t;
  static constexpr ValueType kType = ValueType::Int;
};
template <>
struct ValueTraits<double> {
  using Held = double;
  static constexpr ValueType kType = ValueType::Float;
};
template <>
struct ValueTraits<std::string> {
  using Held = std::string;
  static constexpr ValueType kType = ValueType::Text;
};
template <>
struct ValueTraits<std::vector<std::string>> {
  using Held = std::vector<std::string>;
  static constexpr ValueType kType = ValueType::TextList;
};
template <class T>
struct ValueTraits<std::optional<T>> : ValueTraits<T> {};

// Creates a key from `access`, a function from the root to a reference to the member.
template <class Root, class Member, class Access>
Key<Root> make_key_with(const std::string& name, const KeyOptions& options, Access access) {
  Key<Root> key;
  key.name = name;
  key.rule.choices = options.choices;
  key.rule.range = options.range;
  key.options = options;
  if constexpr (std::is_enum_v<Member>) {
    const std::vector<std::string> choices = key.rule.choices;
    key.get = [=](const Root& root) {
      return ConfigValue(choices.at(static_cast<size_t>(access(root))));
    };
    key.set = [=](Root& root, const ConfigValue& value) {
      const auto at = std::find(choices.begin(), choices.end(), std::get<std::string>(value));
      access(root) = static_cast<Member>(at - choices.begin());
    };
  } else {
    key.rule.type = ValueTraits<Member>::kType;
    key.get = [=](const Root& root) {
      const Member& member = access(root);
      if constexpr (requires { member.has_value(); }) {
        return member ? ConfigValue(*member) : ConfigValue();
      } else {
        return ConfigValue(member);
      }
    };
    key.set = [=](Root& root, const ConfigValue& value) {
      access(root) = std::get<typename ValueTraits<Member>::Held>(value);
    };
  }
  return key;
}

// A key for a member of the root itself.
template <class Root, class Member>
Key<Root> make_key(const std::string& name, Member Root::*member, const KeyOptions& options) {
  return make_key_with<Root, Member>(
      name, options, [=](auto& root) -> auto& { return root.*member; });
}

// A key for a member of one part of the root.
template <class Root, class Part, class Member>
Key<Root> make_key(const std::string& name, Part Root::*part, Member Part::*member,
                   const KeyOptions& options) {
  return make_key_with<Root, Member>(
      name, options, [=](auto& root) -> auto& { return (root.*part).*member; });
}

// The key of that name in a list, or null.
template <class Root>
const Key<Root>* find_key(const std::vector<Key<Root>>& keys, std::string_view name) {
  const auto at = std::find_if(keys.begin(), keys.end(),
                               [&](const Key<Root>& key) { return key.name == name; });
  return at == keys.end() ? nullptr : &*at;
}

// Checks an entry against its key and stores the value. Throws UserError(Config).
template <class Root>
void apply_entry(const std::vector<Key<Root>>& keys, const Entry& entry, Root& root) {
  const Key<Root>* key = find_key(keys, entry.key);
  if (key == nullptr) {
    std::vector<std::string> known;
    for (const Key<Root>& candidate : keys) {
      known.push_back(candidate.name);
    }
    throw_unknown_key(entry, known);
  }
  key->set(root, check_value(entry, key->rule));
}

}  // namespace weft
