// The printable characters in which byte-level vocabularies write bytes: visible Latin-1 characters
// represent themselves, the other 68 bytes are U+0100 and up, in order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// The text that represents these bytes.
std::string to_byte_alphabet(std::string_view bytes);

// The bytes that a text represents; nullopt when it has other characters or is not UTF-8.
std::optional<std::string> from_byte_alphabet(std::string_view text);

// All bytes in the order of their characters, as vocabularies list them.
std::string bytes_in_alphabet_order();

}  // namespace weft
