// From TOML text and command-line overrides to a Config, and back to TOML. All of it is driven by
// the schema; a message names the file and line or the command-line argument.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/open_set.h"

namespace weft {

// Reads a config file of at most 1 MiB and applies overrides "--section.key=value" in order.
// Throws UserError(Config) for anything wrong in either. Values are checked one by one here;
// validate() checks them together.
Config load_config(const std::string& path, const std::vector<std::string>& overrides);

// The same for text at hand; `file_name` appears in messages.
Config parse_config(std::string_view toml, const std::string& file_name,
                    const std::vector<std::string>& overrides);

// Throws UserError(Config) for a key whose value stands in the next word: "--section.key value".
void check_override_words(std::span<const char* const> words);

// True when an argument has the form of an override: "--section.key" with or without a value.
bool looks_like_override(std::string_view argument);

// Every key of the config as TOML, section by section, that parse_config reads back to the same
// values; unset options are left out.
std::string config_to_toml(const Config& config);

// The reference page of every key: type, default, meaning, choices, when it has an effect.
std::string config_reference_markdown(const OpenSets& sets);

}  // namespace weft
