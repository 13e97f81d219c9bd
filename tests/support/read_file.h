// Reads a file into a string.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace weft {

// Empty for a missing file.
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace weft
