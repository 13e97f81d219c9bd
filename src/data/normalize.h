// Unicode normalization form C (UAX #15): equivalent texts get equal code points. Hangul syllables
// follow a formula; everything else comes from generated tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// Canonical decompositions, packed as composes << 63 | code point << 42 | first << 21 | second;
// `second` is 0 if there is only one part. Generated.
std::span<const uint64_t> packed_decompositions();

// Characters with the same canonical combining class, in order; generated.
struct CombiningRange {
  char32_t first;
  char32_t last;
  uint8_t combining_class;
};
std::span<const CombiningRange> combining_ranges();

// The text, which is valid UTF-8, in form C.
std::string normalize_nfc(std::string_view text);

}  // namespace weft
