// The TOML file that keeps what `weft bench tune` has measured.
#pragma once

#include <string>
#include <string_view>

#include "base/tuning.h"
#include "config/config.h"

namespace weft {

// The file that device.tuning names; empty when it names none. Throws UserError(Config).
Tuning load_tuning(const Config& config);

// The tuning in TOML text; every key must be there. `file_name` appears in messages.
Tuning parse_tuning(std::string_view toml, const std::string& file_name);

// TOML that parse_tuning reads back to the same choices.
std::string tuning_to_toml(const Tuning& tuning);

}  // namespace weft
