// JSON from untrusted files: bounded nesting, no duplicate keys, errors with line numbers. Fields
// are read through functions that report what is missing or has the wrong type. Include
// <nlohmann/json.hpp> only to look inside a value.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace weft {

inline constexpr int kMaxJsonNesting = 64;

// Parses a complete text; `where` (a path) starts every error message.
nlohmann::json parse_json(std::string_view text, std::string_view where);

// Parses a file of at most `max_bytes`.
nlohmann::json read_json_file(const std::string& path, int64_t max_bytes);

// "a string", "an array", "null", ...: what a value is, for messages.
std::string json_type(const nlohmann::json& value);

// The member `key` of an object; an error when it is missing or `object` is not an object.
const nlohmann::json& json_member(const nlohmann::json& object, const std::string& key,
                                  std::string_view where);

// The member `key` as a string, an integer of 64 bits, or true or false.
std::string json_string(const nlohmann::json& object, const std::string& key,
                        std::string_view where);
int64_t json_int(const nlohmann::json& object, const std::string& key, std::string_view where);
bool json_flag(const nlohmann::json& object, const std::string& key, std::string_view where);

}  // namespace weft
