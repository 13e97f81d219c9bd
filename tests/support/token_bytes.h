// Hand-made contents of token files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

template <class T>
std::string raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// A header of llm.c: 256 numbers, of which three are used.
inline std::string header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> fields(256, 0);
  fields[0] = magic;
  fields[1] = version;
  fields[2] = tokens;
  return raw(fields);
}

}  // namespace weft
