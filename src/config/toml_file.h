// Reads TOML into a flat list of dotted keys, each with its place in the file. The only file that
// sees the TOML library; limits on size and depth are set here because the text may be hostile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace weft {

constexpr int64_t kLargestTomlBytes = 1 << 20;
constexpr int kDeepestToml = 32;

// Every value in the text, in the order of the file. Throws UserError(Config) for malformed text;
// `file_name` is only quoted.
std::vector<Entry> read_toml(std::string_view text, const std::string& file_name);

// The contents of a config file. Throws UserError(Config) when it cannot be read or is too large.
std::string read_config_file(const std::string& path);

}  // namespace weft
