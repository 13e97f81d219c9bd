// Text helpers shared by every layer: concatenation, splitting, human units, number formatting that
// reads back exactly, and the nearest-name search behind "did you mean".
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace weft {

// Appends the stream form of `part`. Strings and integers, by far the most common parts, avoid the
// cost of a stream.
template <class Part>
void append_to(std::string& text, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    text += std::string_view(part);
  } else if constexpr (std::is_same_v<Part, char>) {
    text += part;
  } else if constexpr (std::is_integral_v<Part>) {
    text += std::to_string(part);
  } else {
    std::ostringstream out;
    out << part;
    text += out.str();
  }
}

// Concatenates the stream forms of its arguments.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string text;
  (append_to(text, parts), ...);
  return text;
}

// Splits at every `separator`; an empty text gives one empty part.
std::vector<std::string> split(std::string_view text, char separator);

// Concatenates `parts` with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// Removes white space at both ends.
std::string_view trim(std::string_view text);

// Parses the complete text as a number; nullopt on leftover characters or overflow.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);

// The shortest decimal text that reads back to the same double ("0.1", "1e-05").
std::string format_double(double value);

// "512 B", "1.5 KiB", "40.96 GiB".
std::string human_bytes(double bytes);

// "950", "12.3 k", "1.24 G": decimal units for counts and FLOPs.
std::string human_count(double count);

// "4.2 s", "3 min 05 s", "2 h 10 min".
std::string human_duration(double seconds);

// Sixteen lower-case hexadecimal digits.
std::string hex64(uint64_t value);

// Text from the user, for a message: control characters become '?', and text of more than `most`
// bytes ends in "..." after the last character that fits.
std::string shortened(std::string_view text, size_t most = 60);

// The same in double quotes.
std::string in_quotes(std::string_view text);

// The candidate with the smallest edit distance to `name`, if it is close enough to be a typo.
std::optional<std::string> nearest(std::string_view name,
                                   const std::vector<std::string>& candidates);

}  // namespace weft
