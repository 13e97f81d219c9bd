// Compares a text with a file under tests/golden; a difference shows both and how to accept it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "support/read_file.h"

namespace weft {

// Expects `text` to be the content of tests/golden/<name>. On a difference the text is left in the
// test's temporary folder, so that one copy accepts it.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(WEFT_TESTS_DIR) + "/golden/" + name;
  const std::string expected = read_file(path);
  if (text == expected) return;
  std::string file_name = name;
  std::replace(file_name.begin(), file_name.end(), '/', '-');
  const std::string actual = ::testing::TempDir() + file_name;
  std::ofstream(actual, std::ios::binary) << text;
  EXPECT_EQ(text, expected) << "to accept: cp " << actual << " " << path;
}

}  // namespace weft
