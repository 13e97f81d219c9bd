// From TOML text and command-line overrides to a Config, and back to TOML. The schema drives all of
// it; messages name the file and line or the command-line argument.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/choices.h"
#include "config/config.h"

namespace weft {

// Reads a config file of at most 1 MiB and applies the overrides "--section.key=value" in order.
// Throws UserError(Config) for any error in either. Each value is checked on its own here;
// validate() checks them together.
Config load_config(const std::string& path, const std::vector<std::string>& overrides);

// The same for text in memory; `file_name` appears in messages.
Config parse_config(std::string_view toml, const std::string& file_name,
                    const std::vector<std::string>& overrides);

// Throws UserError(Config) for an override whose value is a separate word: "--section.key value".
void check_override_words(std::span<const char* const> words);

// True when an argument has the form of an override: "--section.key" with or without a value.
bool looks_like_override(std::string_view argument);

// Every key of the config as TOML, section by section; parse_config reads back the same values.
// Unset options are omitted.
std::string config_to_toml(const Config& config);

// The reference page of all keys: type, default, meaning, choices, when a key has an effect.
std::string config_reference_markdown(const ConfigChoices& sets);

}  // namespace weft
