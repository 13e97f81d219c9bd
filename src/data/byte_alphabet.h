// The printable characters that byte-level vocabularies write bytes as: visible Latin-1 characters
// stand for themselves, the other 68 bytes are U+0100 and up, in order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// The text that stands for these bytes.
std::string to_byte_alphabet(std::string_view bytes);

// The bytes that a text stands for; nothing when it has other characters or is not UTF-8.
std::optional<std::string> from_byte_alphabet(std::string_view text);

// All bytes in the order of their characters, as vocabularies list them.
std::string bytes_in_alphabet_order();

}  // namespace weft
