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

Entry read_override(const std::string& argument) {
  USER_CHECK(looks_like_override(argument), "command line: ", argument,
             " is not an option, expected --section.key=value");
  const std::string name = argument.substr(2, argument.find('=') - 2);
  const Key<Config>* key = find_config_key(name);
  USER_CHECK(key == nullptr || argument.find('=') != std::string::npos, "command line: ", argument,
             " has no value; write ", argument, "=VALUE");
  return command_line_entry(argument, key == nullptr ? ValueType::Text : key->rule.type);
}

}  // namespace

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
