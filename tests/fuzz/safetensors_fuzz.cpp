// The input is read as an entire file, and again as header and data with the correct length, so
// that the fuzzer need not guess it. The tensors of an accepted file must tile the data.
#include <string>

#include "checkpoint/safetensors.h"
#include "fuzz/fuzz.h"

namespace {

void read_file(std::string_view file) {
  weft::only_user_errors([&] {
    const auto size = static_cast<int64_t>(file.size());
    const int64_t length = weft::safetensors_header_length(weft::bytes_of(file), size, "input");
    const weft::SafetensorsHeader header =
        weft::parse_safetensors_header(file.substr(8, static_cast<size_t>(length)), size, "input");
    int64_t reached = 0;
    for (const weft::TensorEntry& entry : header.entries) {
      weft::must_hold(entry.begin == reached && entry.end >= entry.begin);
      reached = entry.end;
    }
    weft::must_hold(header.data_begin + reached == static_cast<int64_t>(file.size()));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = weft::text_of(data, size);
  read_file(text);
  const size_t header_size = text.rfind('}') + 1;  // 0 when there is none
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(uint64_t{header_size} >> (8 * i));
  read_file(file.append(text));
  return 0;
}
