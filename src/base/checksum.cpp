// The library is used as a header: one file needs it, and nothing has to be linked.
#define XXH_INLINE_ALL
#include "base/checksum.h"

#include <xxhash.h>

#include <cstdio>

namespace weft {

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string digest(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return to_hex(hash.high64) + to_hex(hash.low64);
}

std::string to_hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

}  // namespace weft
