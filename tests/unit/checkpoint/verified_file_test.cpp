// Reads of a file whose blocks have checksums: the same bytes as without, and damage is found in
// every block that is used.
#include "checkpoint/verified_file.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

constexpr std::string_view kBytes = "abcdefghijklmnop";

uint64_t checksum_of(std::string_view text) {
  return checksum(std::as_bytes(std::span(text)));
}

// kBytes as blocks of 3, 5, 1 and 7 bytes.
ManifestFile description() {
  ManifestFile file{"file", {}};
  size_t begin = 0;
  for (const size_t size : {3, 5, 1, 7}) {
    file.blocks.push_back({static_cast<int64_t>(size), checksum_of(kBytes.substr(begin, size))});
    begin += size;
  }
  return file;
}

std::string read(const VerifiedFile& file, size_t offset, size_t length) {
  std::string text(length, ' ');
  file.read(static_cast<int64_t>(offset), std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(VerifiedFile, EveryRangeHasItsBytes) {
  const TempFolder folder;
  const ManifestFile described = description();
  const std::string path = folder.write("file", kBytes);
  const VerifiedFile plain = VerifiedFile::open(path);
  const VerifiedFile verified = VerifiedFile::open(path, &described);
  EXPECT_EQ(verified.size(), 16);
  EXPECT_EQ(verified.path(), path);
  for (size_t offset = 0; offset <= kBytes.size(); ++offset) {
    for (size_t length = 0; offset + length <= kBytes.size(); ++length) {
      EXPECT_EQ(read(verified, offset, length), kBytes.substr(offset, length));
      EXPECT_EQ(read(plain, offset, length), kBytes.substr(offset, length));
    }
  }
  EXPECT_NO_THROW(verified.verify());
}

// 'e' becomes 'E', in the block of bytes 3 to 7.
TEST(VerifiedFile, ADamagedBlockIsFoundWhenItIsRead) {
  const TempFolder folder;
  const ManifestFile described = description();
  const std::string path = folder.write("file", "abcdEfghijklmnop");
  const VerifiedFile file = VerifiedFile::open(path, &described);
  const std::string message =
      cat(path, ": the block at byte 3 of 5 bytes has checksum ", to_hex(checksum_of("dEfgh")),
          ", expected ", to_hex(checksum_of("defgh")), "; the file is damaged");
  EXPECT_EQ(read(file, 0, 3), "abc");
  EXPECT_EQ(read(file, 8, 8), "ijklmnop");
  EXPECT_EQ(read(file, 5, 0), "");
  // The parts that are read need not be the damaged ones, and a second attempt is no better.
  for (const auto& [offset, length] :
       std::vector<std::pair<size_t, size_t>>{{0, 16}, {3, 5}, {3, 1}, {7, 1}, {7, 1}, {2, 2}}) {
    expect_user_error(ExitCode::Integrity, message,
                      [&, offset = offset, length = length] { read(file, offset, length); });
  }
  EXPECT_EQ(read(file, 8, 3), "ijk");
  expect_user_error(ExitCode::Integrity, message, [&] { file.verify(); });
}

TEST(VerifiedFile, EverySingleBitFlipIsFound) {
  const TempFolder folder;
  const ManifestFile described = description();
  for (size_t bit = 0; bit < 8 * kBytes.size(); ++bit) {
    std::string bytes(kBytes);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const std::string path = folder.write("file", bytes);
    EXPECT_THROW(VerifiedFile::open(path, &described).verify(), UserError) << "bit " << bit;
  }
}

// Blocks that changed places have valid checksums, but not at these offsets.
TEST(VerifiedFile, ExchangedBlocksAreFound) {
  const TempFolder folder;
  const ManifestFile described{"file", {{1, checksum_of("a")}, {1, checksum_of("b")}}};
  const VerifiedFile file = VerifiedFile::open(folder.write("file", "ba"), &described);
  EXPECT_THROW(read(file, 0, 1), UserError);
  EXPECT_THROW(read(file, 1, 1), UserError);
}

TEST(VerifiedFile, AnotherSizeIsFoundWhenOpening) {
  const TempFolder folder;
  const ManifestFile described = description();
  for (const std::string bytes : {"", "abcdefghijklmno", "abcdefghijklmnop!"}) {
    const std::string path = folder.write("file", bytes);
    expect_user_error(ExitCode::Integrity,
                      cat(path, ": file has ", bytes.size(), " bytes, expected 16; it is damaged"),
                      [&] { VerifiedFile::open(path, &described); });
  }
}

TEST(VerifiedFile, AMissingFile) {
  const TempFolder folder;
  const ManifestFile described = description();
  const std::string path = folder / "file";
  expect_user_error(ExitCode::Integrity, path + ": the file is missing",
                    [&] { VerifiedFile::open(path, &described); });
  expect_user_error(ExitCode::InputFile, path + ": cannot open the file: No such file or directory",
                    [&] { VerifiedFile::open(path); });
}

TEST(VerifiedFile, WithoutADescriptionNothingIsCompared) {
  const TempFolder folder;
  const VerifiedFile file = VerifiedFile::open(folder.write("file", "anything"));
  EXPECT_EQ(file.size(), 8);
  EXPECT_EQ(read(file, 3, 5), "thing");
  EXPECT_NO_THROW(file.verify());
}

TEST(VerifiedFile, AnEmptyFileHasNoBlocks) {
  const TempFolder folder;
  const ManifestFile described{"file", {}};
  const VerifiedFile file = VerifiedFile::open(folder.write("file", ""), &described);
  EXPECT_EQ(read(file, 0, 0), "");
  EXPECT_NO_THROW(file.verify());
}

}  // namespace
}  // namespace weft
