// A process that ends at once removes the outputs being written, and nothing else.
#include "base/partial_files.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/temp_folder.h"

namespace weft {
namespace {

using Names = std::vector<std::string>;

TEST(PartialFiles, OutputsThatAreBeingWrittenAreRemoved) {
  const TempFolder folder;
  OutputFile done(folder / "done");
  done.commit();
  { const OutputFile discarded(folder / "discarded"); }
  folder.write("discarded.partial", "another's");
  std::vector<OutputFile> open;
  for (int i = 0; i < 3; ++i) open.emplace_back(folder / std::to_string(i));  // they move
  ASSERT_EQ(folder.names().size(), 5U);
  remove_partial_files();
  EXPECT_EQ(folder.names(), (Names{"discarded.partial", "done"}));
}

// Files beyond the capacity are left behind, as after a kill; freed slots are reused.
TEST(PartialFiles, ThereIsRoomForThoseOfASave) {
  const TempFolder folder;
  {
    std::vector<OutputFile> open;
    for (int i = 0; i < 40; ++i) open.emplace_back(folder / std::to_string(i));
  }
  const OutputFile output(folder / "a");
  remove_partial_files();
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace weft
