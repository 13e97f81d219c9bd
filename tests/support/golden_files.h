// Lists the cases of a golden test.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace weft {

// The files with this extension under tests/golden/<folder>, sorted.
inline std::vector<std::filesystem::path> golden_files(const std::string& folder,
                                                       const std::string& extension) {
  std::vector<std::filesystem::path> files;
  const std::string root = std::string(WEFT_TESTS_DIR) + "/golden/" + folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Their names without folder and extension.
inline std::vector<std::string> golden_names(const std::string& folder,
                                             const std::string& extension) {
  std::vector<std::string> names;
  for (const auto& file : golden_files(folder, extension)) names.push_back(file.stem().string());
  return names;
}

}  // namespace weft
