// Every accepted layout must lie inside the file.
#include "data/token_file.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = weft::bytes_of(weft::text_of(data, size));
  const auto check = [&](const weft::TokenLayout& layout) {
    const int64_t end = layout.begin + layout.tokens * layout.bytes_per_token;
    weft::must_hold(layout.tokens >= 0 && end == static_cast<int64_t>(size));
  };
  weft::only_user_errors(
      [&] { check(weft::parse_token_layout(file, static_cast<int64_t>(size), "input")); });
  weft::only_user_errors(
      [&] { check(weft::plain_token_layout(static_cast<int64_t>(size), 4, "input")); });
  return 0;
}
