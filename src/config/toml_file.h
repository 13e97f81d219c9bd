// Reads TOML into a flat list of dotted keys, each with its position in the file. The only file
// that uses the TOML library. It limits size and depth because the text is untrusted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace weft {

constexpr int64_t kLargestTomlBytes = 1 << 20;
constexpr int kDeepestToml = 32;

// All values of the text in file order. Throws UserError(Config) for malformed text; `file_name`
// appears in messages.
std::vector<Entry> read_toml(std::string_view text, const std::string& file_name);

// The contents of a config file. Throws UserError(Config) when it cannot be read or is too large.
std::string read_config_file(const std::string& path);

}  // namespace weft
