// FNV-1a: xor a byte, multiply by the prime.
#include "base/hash.h"

namespace weft {

void Hasher::add(std::span<const std::byte> bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;
  for (const std::byte byte : bytes) {
    value_ = (value_ ^ static_cast<uint64_t>(byte)) * kPrime;
  }
}

void Hasher::add(std::string_view text) {
  add(std::as_bytes(std::span(text.data(), text.size())));
}

void Hasher::add_field(std::string_view text) {
  add(uint64_t{text.size()});
  add(text);
}

void Hasher::add(uint64_t number) {
  std::byte bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(number >> (8 * i));
  add(bytes);
}

uint64_t hash_text(std::string_view text) {
  Hasher hasher;
  hasher.add(text);
  return hasher.value();
}

}  // namespace weft
