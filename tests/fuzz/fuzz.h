// Shared by all fuzz targets: a UserError is a valid answer, any other exception is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "base/error.h"

namespace weft {

// Runs `action`; user errors are fine.
template <class Action>
void only_user_errors(Action action) {
  try {
    action();
  } catch (const UserError&) {
  }
}

// Stops the fuzzer with a finding unless the condition holds.
inline void must_hold(bool condition) {
  if (!condition) std::abort();
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return size == 0 ? std::string_view()
                   : std::string_view(reinterpret_cast<const char*>(data), size);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace weft
