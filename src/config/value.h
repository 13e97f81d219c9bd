// The untyped side of the config: a value as TOML or the command line gave it, with its origin for
// messages, and the rules (type, choices, range) it is checked against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weft {

// One option value; monostate means "unset", or a type that no option has.
using ConfigValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<std::string>>;

enum class ValueType { Bool, Int, Float, Text, TextList };

// The text of `found` for a table.
constexpr std::string_view kTableFound = "a table";

// A key with its value as the user gave it.
struct Entry {
  std::string key = {};      // "training.steps"
  std::string shown = {};    // the key as messages show it
  ConfigValue value = {};    // monostate for a table or a type that no option has
  std::string found = {};    // "a string", "a whole number", "a table" ...
  std::string where = {};    // "a.toml:3" or "command line"
  std::string subject = {};  // for messages: "a.toml:3: training.steps = \"many\""
};

// Allowed numbers; `also` is one extra value with a special meaning, such as -1.
struct Range {
  std::optional<double> at_least = {};
  std::optional<double> above = {};
  std::optional<double> at_most = {};
  std::optional<double> below = {};
  std::optional<double> also = {};
};

// What a key requires of its value.
struct ValueRule {
  ValueType type = ValueType::Text;
  std::vector<std::string> choices = {};
  Range range = {};
};

// "true or false", "a whole number", "a number", "a string", "a list of strings".
std::string_view type_phrase(ValueType type);

// "at least 1", "at least 0 and below 1", "-1, or at least 1"; empty when unrestricted.
std::string range_phrase(const Range& range);

// `"a", "b" or "c"`.
std::string choices_phrase(const std::vector<std::string>& choices);

// The value converted to the type of the rule (a whole number is accepted as a number). Throws
// UserError(Config) with the entry's subject when type, choice or range do not match.
ConfigValue check_value(const Entry& entry, const ValueRule& rule);

// The value in TOML syntax; floats read back exactly.
std::string value_to_toml(const ConfigValue& value);

// The entry for "--section.key=value"; the text is parsed as `type` if possible. Commas separate
// the strings of a list.
Entry command_line_entry(std::string_view argument, ValueType type);

}  // namespace weft
