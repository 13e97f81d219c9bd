#include "config/load.h"

#include "base/error.h"
#include "base/text.h"
#include "config/schema.h"
#include "config/toml_file.h"

namespace weft {
namespace {

void apply(const Entry& entry, Config& config) {
  apply_entry(config_keys(), entry, config);
  config.set_by_user[entry.key] = entry.subject;
}

// A bracketed list is parsed as TOML, as in a config file.
ConfigValue bracketed_list(const Entry& entry, const std::string& text) {
  ConfigValue value;
  try {
    value = read_toml(cat("list = ", text), "command line").at(0).value;
  } catch (const UserError&) {
    // The advice below also fits malformed text.
  }
  USER_CHECK(std::holds_alternative<std::vector<std::string>>(value), entry.subject,
             " is not a TOML list of strings; put each string in double quotes and the argument in "
             "single quotes, or write --",
             entry.shown, "=a,b");
  return value;
}

Entry read_override(const std::string& argument) {
  USER_CHECK(looks_like_override(argument), "command line: ", shortened(argument),
             " is not an option, expected --section.key=value");
  const size_t equals = argument.find('=');
  const std::string name = argument.substr(2, equals - 2);
  const Key<Config>* key = find_config_key(name);
  USER_CHECK(key == nullptr || equals != std::string::npos, "command line: ", argument,
             " has no value; write ", argument, "=VALUE");
  const ValueType type = key == nullptr ? ValueType::Text : key->rule.type;
  Entry entry = command_line_entry(argument, type);
  if (type == ValueType::TextList && argument.compare(equals + 1, 1, "[") == 0) {
    entry.value = bracketed_list(entry, argument.substr(equals + 1));
  }
  return entry;
}

}  // namespace

void check_override_words(std::span<const char* const> words) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string_view word = words[i];
    const std::string_view next = words[i + 1];
    const bool is_bare = looks_like_override(word) && word.find('=') == std::string_view::npos;
    USER_CHECK(!is_bare || next.starts_with("--"), "command line: ", shortened(word), " ",
               shortened(next), " has a space, expected \"=\"; write ", shortened(word), "=",
               shortened(next));
  }
}

bool looks_like_override(std::string_view argument) {
  const std::string_view name = argument.substr(0, argument.find('='));
  return name.size() > 2 && name.substr(0, 2) == "--" && name.find('.') != std::string_view::npos;
}

Config parse_config(std::string_view toml, const std::string& file_name,
                    const std::vector<std::string>& overrides) {
  Config config;
  for (const Entry& entry : read_toml(toml, file_name)) {
    const bool empty_section = entry.found == kTableFound && is_config_section(entry.key);
    if (!empty_section) {
      apply(entry, config);
    }
  }
  for (const std::string& argument : overrides) {
    apply(read_override(argument), config);
  }
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_config(read_config_file(path), path, overrides);
}

std::string config_to_toml(const Config& config) {
  std::string out;
  for (const Section& section : config_sections()) {
    out += cat(out.empty() ? "" : "\n", "[", section.name, "]\n");
    const std::string prefix = section.name + ".";
    for (const Key<Config>& key : config_keys()) {
      const ConfigValue value = key.get(config);
      const bool here = key.name.compare(0, prefix.size(), prefix) == 0;
      if (here && !std::holds_alternative<std::monostate>(value)) {
        out += cat(key.name.substr(prefix.size()), " = ", value_to_toml(value), "\n");
      }
    }
  }
  return out;
}

}  // namespace weft
