// Module paths ("layers.3.attention") and the patterns that select them in a config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// "layers.N".
std::string block_path(int64_t block);

// N for a path "layers.N" or "layers.N.rest"; -1 outside blocks.
int64_t block_of(std::string_view path);

// The form in names of values: "l3.attention" for "layers.3.attention".
std::string short_path(std::string_view path);

// Replaces the number of a block in a path or the name of a value, so that all blocks have the same
// name: "layers.*.norm", "l*.norm.w".
std::string without_block(std::string_view name);

// The leading segments of a dotted name that a pattern matches.
struct ModuleMatch {
  std::string path;      // "layers.3.attention"
  std::string wildcard;  // the segments that matched a wildcard: "3"
};

// Throws UserError for a pattern with a malformed range; the message starts with `subject`.
void check_module_pattern(std::string_view pattern, const std::string& subject);

// Matches "layers.*", "layers.[0-11].attention" or "out?ut" against the beginning of `name`.
std::optional<ModuleMatch> match_module(std::string_view pattern, std::string_view name);

// The number of segments of a pattern that have a wildcard.
size_t count_wildcards(std::string_view pattern);

}  // namespace weft
