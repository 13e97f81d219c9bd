// The README and a page show what passes write; here they write it again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "cli/workspace.h"
#include "support/read_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The fenced blocks between this heading and the next one.
std::vector<std::vector<std::string>> blocks_of(const std::string& page,
                                                const std::string& heading) {
  std::vector<std::vector<std::string>> blocks;
  bool is_here = false;
  bool is_code = false;
  for (const std::string& line : split(page, '\n')) {
    if (!is_code && line.starts_with("#")) is_here = line == heading;
    if (!is_here) continue;
    if (line.starts_with("```")) {
      is_code = !is_code;
      if (is_code) blocks.emplace_back();
    } else if (is_code) {
      blocks.back().push_back(line);
    }
  }
  return blocks;
}

// Whether the line is what is shown, which may leave parts out as "...", and what follows it.
bool is_shown_as(std::string_view line, std::string_view shown) {
  size_t at = 0;
  size_t from = 0;
  while (from <= shown.size()) {
    const size_t gap = std::min(shown.find("...", from), shown.size());
    const std::string_view part = shown.substr(from, gap - from);
    const size_t found = line.find(part, at);
    if (found == std::string_view::npos || (from == 0 && found != 0)) return false;
    at = found + part.size();
    from = gap + 3;
  }
  return true;
}

// Whether all lines stand in the dump in this order; a line of nothing but words says what is
// between them.
bool shows(const std::vector<std::string>& dump, const std::vector<std::string>& block) {
  size_t next = 0;
  for (const std::string& shown : block) {
    if (shown.starts_with("...")) continue;
    while (next < dump.size() && !is_shown_as(trim(dump[next]), shown)) ++next;
    if (next == dump.size()) return false;
    ++next;
  }
  return true;
}

TEST(Readme, ShowsWhatPassesWrite) {
  const Workspace work;
  work.folder().write("llama.toml",
                      "[model]\nname = \"llama\"\nflavor = \"debug\"\nn_layers = 2\n");
  work.run_ok({"plan", "llama.toml", "--ranks", "4", "--training.local_batch_size=2",
               "--training.seq_len=16", "--compile.dump_folder=dumps"});
  std::vector<std::vector<std::string>> dumps;
  for (const auto& entry : fs::directory_iterator(work.folder() / "dumps")) {
    dumps.push_back(split(read_file(entry.path()), '\n'));
  }
  const std::string heading = "# What the compiler does to your communication";
  auto blocks = blocks_of(read_file(WEFT_TESTS_DIR "/../docs/communication.md"), heading);
  EXPECT_EQ(blocks.size(), 5U);
  const auto in_readme = blocks_of(read_file(WEFT_TESTS_DIR "/../README.md"), "#" + heading);
  EXPECT_EQ(in_readme.size(), 2U);
  blocks.insert(blocks.end(), in_readme.begin(), in_readme.end());
  for (const auto& block : blocks) {
    EXPECT_TRUE(std::any_of(dumps.begin(), dumps.end(), [&](const auto& dump) {
      return shows(dump, block);
    })) << join(block, "\n");
  }
}

}  // namespace
}  // namespace weft
