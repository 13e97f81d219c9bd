// JSON from outside: bounded nesting, no duplicate keys, errors that name the line. Fields are read
// through functions that say what is missing or of the wrong kind. Files that only pass a value on
// need this header alone; those that look inside include <nlohmann/json.hpp>.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace weft {

inline constexpr int kMaxJsonNesting = 64;

// Parses a whole text; `where` (a path) opens every error message.
nlohmann::json parse_json(std::string_view text, std::string_view where);

// Parses a file of at most `max_bytes`.
nlohmann::json read_json_file(const std::string& path, int64_t max_bytes);

// The member `key` of an object; an error when it is absent or `object` is not an object.
const nlohmann::json& json_member(const nlohmann::json& object, const std::string& key,
                                  std::string_view where);

// The member `key` as a text, or a whole number that fits.
std::string json_string(const nlohmann::json& object, const std::string& key,
                        std::string_view where);
int64_t json_int(const nlohmann::json& object, const std::string& key, std::string_view where);

}  // namespace weft
