// The writer: exact bytes, and nothing left behind without a commit.
#include "checkpoint/safetensors_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "support/temp_folder.h"

namespace weft {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(SafetensorsWriter, ExactBytes) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "m", {{"w\"x", "F32", {1, 2}}, {"s", "BF16", {}}});
  writer.append(bytes_of("abc"));
  writer.append(bytes_of("defghij"));
  writer.commit();
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("w\"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("s":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string length = {static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(folder.read("m"), length + header + "abcdefghij");
}

TEST(SafetensorsWriter, ReadsBack) {
  const TempFolder folder;
  const std::vector<TensorSpec> specs = {{"c", "I64", {1}},
                                         {"e", "F32", {0, 7}},
                                         {"d", "I32", {1}},
                                         {"a", "BF16", {1}},
                                         {"b", "F16", {3}}};
  SafetensorsWriter writer(folder / "m", specs, {{"step", "7"}});
  writer.append(bytes_of("ccccccccddddaabbbbbb"));
  writer.commit();
  const auto file = SafetensorsFile::open(folder / "m");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"step", "7"}}));
  for (const char* name : {"a", "b", "c", "d"}) {
    for (const std::byte byte : file.bytes(name)) EXPECT_EQ(static_cast<char>(byte), name[0]);
  }
  EXPECT_EQ(file.find("e")->shape, (std::vector<int64_t>{0, 7}));
}

TEST(SafetensorsWriter, IncompleteFilesAreNotCommitted) {
  const TempFolder folder;
  {
    SafetensorsWriter writer(folder / "m", {{"a", "F32", {2}}});
    writer.append(bytes_of("1234"));
    EXPECT_THROW(writer.commit(), InternalError);
    EXPECT_THROW(writer.append(bytes_of("12345")), InternalError);
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(SafetensorsWriter, RefusesWhatItCannotWrite) {
  const TempFolder folder;
  EXPECT_THROW(SafetensorsWriter(folder / "m", {{"a", "F8_E4M3", {2}}}), InternalError);
  EXPECT_THROW(SafetensorsWriter(folder / "m", {{"a", "F32", {}}, {"a", "F32", {}}}),
               InternalError);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace weft
