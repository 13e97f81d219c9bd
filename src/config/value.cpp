#include "config/value.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/one_of.h"
#include "base/text.h"

namespace weft {
namespace {

// Sizes are multiplied with each other; this limit keeps the results far from overflow. A key may
// set its own limit.
constexpr double kLargestInt = 2147483647;

std::string number_text(double number) {
  const bool integer = number == std::floor(number) && std::abs(number) < 1e15;
  return integer ? cat(static_cast<int64_t>(number)) : format_double(number);
}

// Digits with an optional sign.
bool is_integer(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) {
    text.remove_prefix(1);
  }
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool in_range(double number, const Range& range) {
  if (range.also && number == *range.also) {
    return true;
  }
  return !(range.at_least && number < *range.at_least) &&
         !(range.above && number <= *range.above) && !(range.at_most && number > *range.at_most) &&
         !(range.below && number >= *range.below);
}

void check_number(const Entry& entry, double number, const ValueRule& rule) {
  USER_CHECK(std::isfinite(number), entry.subject, " is not finite, expected a number");
  USER_CHECK(in_range(number, rule.range), entry.subject, " is out of range, expected ",
             range_phrase(rule.range));
  const bool limited = rule.range.at_most || rule.range.below;
  USER_CHECK(rule.type != ValueType::Int || limited || number <= kLargestInt, entry.subject,
             " is out of range, expected at most ", number_text(kLargestInt));
}

// System calls end paths and names at a NUL, and nothing longer than a path is accepted.
void check_text(const Entry& entry, const std::string& text) {
  USER_CHECK(text.find('\0') == std::string::npos, entry.subject,
             " has a NUL character, expected plain text");
  USER_CHECK(text.size() <= kLongestPath, entry.subject, " has ", text.size(),
             " characters, expected at most ", kLongestPath);
}

void check_choice(const Entry& entry, const std::string& text, const ValueRule& rule) {
  if (rule.choices.empty() ||
      std::find(rule.choices.begin(), rule.choices.end(), text) != rule.choices.end()) {
    return;
  }
  throw UserError(ExitCode::Config,
                  cat(entry.subject, " is unknown, expected ", choices_phrase(rule.choices)));
}

}  // namespace

std::string_view type_phrase(ValueType type) {
  switch (type) {
    case ValueType::Bool:
      return "true or false";
    case ValueType::Int:
      return "a whole number";
    case ValueType::Float:
      return "a number";
    case ValueType::Text:
      return "a string";
    case ValueType::TextList:
      return "a list of strings";
  }
  return "";
}

std::string range_phrase(const Range& range) {
  std::vector<std::string> parts;
  const bool single = range.at_least && range.at_most && *range.at_least == *range.at_most;
  if (single) {
    parts.push_back(number_text(*range.at_least));
  }
  if (!single && range.at_least) {
    parts.push_back(cat("at least ", number_text(*range.at_least)));
  }
  if (range.above) {
    parts.push_back(cat("above ", number_text(*range.above)));
  }
  if (!single && range.at_most) {
    parts.push_back(cat("at most ", number_text(*range.at_most)));
  }
  if (range.below) {
    parts.push_back(cat("below ", number_text(*range.below)));
  }
  const std::string bounds = join(parts, " and ");
  return range.also ? cat(number_text(*range.also), ", or ", bounds) : bounds;
}

std::string choices_phrase(const std::vector<std::string>& choices) {
  std::vector<std::string> names;
  for (const std::string& choice : choices) {
    names.push_back(quoted(choice));
  }
  return one_of(names);
}

ConfigValue check_value(const Entry& entry, const ValueRule& rule) {
  ConfigValue value = entry.value;
  if (rule.type == ValueType::Float && std::holds_alternative<int64_t>(value)) {
    value = static_cast<double>(std::get<int64_t>(value));
  }
  // The alternatives of ConfigValue are in the order of ValueType, after monostate.
  USER_CHECK(value.index() == static_cast<size_t>(rule.type) + 1, entry.subject, " is ",
             entry.found, ", expected ", type_phrase(rule.type));
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    check_number(entry, static_cast<double>(*integer), rule);
  } else if (const auto* number = std::get_if<double>(&value)) {
    check_number(entry, *number, rule);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    check_text(entry, *text);
    check_choice(entry, *text, rule);
  } else if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& item : *list) {
      check_text(entry, item);
    }
  }
  return value;
}

std::string value_to_toml(const ConfigValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) {
    return *flag ? "true" : "false";
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return cat(*integer);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    const std::string text = format_double(*number);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return quoted(*text);
  }
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    std::vector<std::string> items;
    for (const std::string& item : *list) {
      items.push_back(quoted(item));
    }
    return cat("[", join(items, ", "), "]");
  }
  return "";
}

Entry command_line_entry(std::string_view argument, ValueType type) {
  const size_t equals = argument.find('=');
  const std::string text(argument.substr(equals + 1));
  const std::string key(argument.substr(2, equals - 2));
  Entry entry{.key = key,
              .shown = shortened(key),
              .value = text,
              .found = "a string",
              .where = "command line",
              .subject = cat("command line: --", shortened(key), "=", shortened(text))};
  if (type == ValueType::TextList) {
    std::vector<std::string> items;
    if (!text.empty()) {
      for (const std::string& item : split(text, ',')) items.emplace_back(trim(item));
    }
    entry.value = items;
    return entry;
  }
  if (type == ValueType::Text) {
    return entry;
  }
  if (text == "true" || text == "false") {
    entry.value = text == "true";
    entry.found = type_phrase(ValueType::Bool);
  } else if (const std::optional<int64_t> integer = parse_int(text)) {
    entry.value = *integer;
    entry.found = type_phrase(ValueType::Int);
  } else if (type == ValueType::Int && is_integer(text)) {
    // Too long for 64 bits, so beyond the range of every key: clamp to the nearest 64-bit number.
    constexpr auto kLimits = std::numeric_limits<int64_t>();
    entry.value = text.starts_with('-') ? kLimits.min() : kLimits.max();
    entry.found = type_phrase(ValueType::Int);
  } else if (const std::optional<double> number = parse_double(text)) {
    entry.value = *number;
    entry.found = type_phrase(ValueType::Float);
  }
  return entry;
}

}  // namespace weft
