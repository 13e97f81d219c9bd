// Streaming 64-bit FNV-1a: names random streams, identifies tokenizers and plans. Fast and stable
// across machines; not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

class Hasher {
 public:
  // Adds raw bytes.
  void add(std::span<const std::byte> bytes);

  // Adds the bytes of a string, without its length.
  void add(std::string_view text);

  // Adds the length and then the string, so that one field cannot run into the next.
  void add_field(std::string_view text);

  // Adds the eight bytes of a number, lowest first.
  void add(uint64_t number);

  // The hash of everything added so far.
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// The hash of one string.
uint64_t hash_text(std::string_view text);

}  // namespace weft
