// XXH3 of bytes: 64 bits find damaged blocks of a file, 128 bits identify a text. Fast and stable
// across machines; not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

uint64_t checksum(std::span<const std::byte> bytes);

// 32 hexadecimal digits.
std::string digest(std::string_view text);

// 16 hexadecimal digits.
std::string to_hex(uint64_t number);

}  // namespace weft
