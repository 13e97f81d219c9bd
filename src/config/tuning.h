// The TOML file that stores what `weft bench tune` measured.
#pragma once

#include <string>
#include <string_view>

#include "base/tuning.h"
#include "config/config.h"

namespace weft {

// The file that device.tuning names; empty when it names none. Throws UserError(Config).
Tuning load_tuning(const Config& config);

// Parses a tuning from TOML; every key is required. `file_name` appears in messages.
Tuning parse_tuning(std::string_view toml, const std::string& file_name);

// The tuning as TOML; parse_tuning reads back the same choices.
std::string tuning_to_toml(const Tuning& tuning);

}  // namespace weft
