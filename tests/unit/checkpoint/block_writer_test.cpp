// Ranges of several ranks become files and blocks of one manifest.
#include "checkpoint/block_writer.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "base/disk.h"
#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Places = std::vector<std::vector<int64_t>>;

// Every byte of every file is a function of its place.
char byte_at(size_t file, int64_t offset) {
  return static_cast<char>((offset * 31 + offset / 251 + static_cast<int64_t>(file) * 7) % 256);
}

std::string content(size_t file, int64_t begin, int64_t bytes) {
  std::string text;
  for (int64_t at = begin; at < begin + bytes; ++at) text += byte_at(file, at);
  return text;
}

std::vector<WrittenBlock> write(const TempFolder& folder, const std::vector<PlannedFile>& files,
                                const std::vector<FileRange>& ranges) {
  return write_ranges(
      folder.path(), files, ranges, [&](size_t range, int64_t first, std::span<std::byte> bytes) {
        const FileRange& of = ranges[range];
        for (size_t i = 0; i < bytes.size(); ++i) {
          bytes[i] =
              static_cast<std::byte>(byte_at(of.file, of.offset + first + static_cast<int64_t>(i)));
        }
      });
}

// File, offset and size of each block.
Places places(const std::vector<WrittenBlock>& blocks) {
  Places found;
  for (const WrittenBlock& block : blocks) found.push_back({block.file, block.offset, block.bytes});
  return found;
}

std::string internal_error_of(const std::vector<WrittenBlock>& blocks) {
  const std::vector<PlannedFile> files = {{"a", 10}, {"none", 0}, {"b", 4}};
  try {
    make_manifest(1, files, blocks);
  } catch (const InternalError& error) {
    const std::string text = error.what();
    return text.substr(text.rfind(": check failed: "));
  }
  return "";
}

// Blocks end at rank boundaries, so that no rank needs the bytes of another.
TEST(BlockWriter, RanksWriteTheirRangesIntoSharedFiles) {
  const TempFolder folder;
  const std::vector<PlannedFile> files = {{"a", 10}, {"b", 6}};
  reserve_files(folder.path(), files);
  EXPECT_EQ(folder.read("a"), std::string(10, '\0'));
  std::vector<WrittenBlock> blocks =
      write(folder, files, {{0, 5, 2}, {0, 7, 3}, {1, 0, 2}, {1, 4, 2}});
  EXPECT_EQ(places(blocks), (Places{{0, 5, 5}, {1, 0, 2}, {1, 4, 2}}));
  const std::vector<WrittenBlock> others = write(folder, files, {{0, 0, 5}, {1, 2, 2}});
  EXPECT_EQ(places(others), (Places{{0, 0, 5}, {1, 2, 2}}));
  blocks.insert(blocks.end(), others.begin(), others.end());

  EXPECT_EQ(folder.read("a"), content(0, 0, 10));
  EXPECT_EQ(folder.read("b"), content(1, 0, 6));
  const Manifest manifest = make_manifest(3, files, blocks);
  EXPECT_EQ(manifest.step, 3);
  ASSERT_EQ(manifest.files.size(), 2U);
  EXPECT_EQ(manifest.files[0].blocks.size(), 2U);
  EXPECT_EQ(manifest.files[1].blocks.size(), 3U);
  EXPECT_NO_THROW(verify_checkpoint(folder.path(), manifest));
}

// The first block consists of two ranges, and the second range of three blocks.
TEST(BlockWriter, BlocksHaveAtMostFourMebibytes) {
  const TempFolder folder;
  const std::vector<PlannedFile> files = {{"a", 2 * kMaxBlockBytes + 110}};
  reserve_files(folder.path(), files);
  const std::vector<WrittenBlock> blocks =
      write(folder, files, {{0, 0, 10}, {0, 10, 2 * kMaxBlockBytes + 100}});
  EXPECT_EQ(places(blocks), (Places{{0, 0, kMaxBlockBytes},
                                    {0, kMaxBlockBytes, kMaxBlockBytes},
                                    {0, 2 * kMaxBlockBytes, 110}}));
  EXPECT_TRUE(folder.read("a") == content(0, 0, files[0].bytes));
  EXPECT_NO_THROW(verify_checkpoint(folder.path(), make_manifest(0, files, blocks)));
}

// Full pages go past the page cache; the pages that two ranks share do not.
TEST(BlockWriter, RanksMeetInsideAPage) {
  const TempFolder folder;
  constexpr int64_t kBorder = kMaxBlockBytes + 5 * BlockFile::kPage + 77;
  const std::vector<PlannedFile> files = {{"a", 3 * kMaxBlockBytes + 5}};
  reserve_files(folder.path(), files);
  std::vector<WrittenBlock> blocks = write(folder, files, {{0, kBorder, files[0].bytes - kBorder}});
  EXPECT_EQ(places(blocks), (Places{{0, kBorder, 2 * kMaxBlockBytes - kBorder},
                                    {0, 2 * kMaxBlockBytes, kMaxBlockBytes},
                                    {0, 3 * kMaxBlockBytes, 5}}));
  const std::vector<WrittenBlock> first = write(folder, files, {{0, 0, kBorder}});
  blocks.insert(blocks.end(), first.begin(), first.end());
  EXPECT_TRUE(folder.read("a") == content(0, 0, files[0].bytes));
  EXPECT_NO_THROW(verify_checkpoint(folder.path(), make_manifest(0, files, blocks)));
}

TEST(BlockWriter, ABlockOfExactlyTheLimitIsNotFollowedByAnEmptyOne) {
  const TempFolder folder;
  const std::vector<PlannedFile> files = {{"a", kMaxBlockBytes}};
  reserve_files(folder.path(), files);
  EXPECT_EQ(places(write(folder, files, {{0, 0, kMaxBlockBytes}})),
            (Places{{0, 0, kMaxBlockBytes}}));
}

TEST(BlockWriter, NeighboursShareABlockAndAGapStartsANewOne) {
  const TempFolder folder;
  const std::vector<PlannedFile> files = {{"a", 20}};
  reserve_files(folder.path(), files);
  const std::vector<WrittenBlock> blocks =
      write(folder, files, {{0, 2, 3}, {0, 5, 0}, {0, 5, 4}, {0, 10, 2}, {0, 12, 1}});
  EXPECT_EQ(places(blocks), (Places{{0, 2, 7}, {0, 10, 3}}));
  const std::string bytes = content(0, 2, 7);
  EXPECT_EQ(blocks[0].checksum, checksum(std::as_bytes(std::span(bytes))));
  // What belongs to others is not touched.
  EXPECT_EQ(folder.read("a"),
            std::string(2, '\0') + bytes + '\0' + content(0, 10, 3) + std::string(7, '\0'));
}

TEST(BlockWriter, ARankMayHaveNothingToWrite) {
  const TempFolder folder;
  const std::vector<PlannedFile> files = {{"a", 3}};
  EXPECT_TRUE(write(folder, files, {}).empty());
  EXPECT_TRUE(write(folder, files, {{0, 1, 0}}).empty());
}

TEST(BlockWriter, FailuresPassThrough) {
  const TempFolder folder;
  const std::vector<PlannedFile> files = {{"a", 3}};
  expect_user_error(ExitCode::CannotWrite,
                    cat(folder / "a", ": cannot write: No such file or directory"), [&] {
                      write(folder, files, {{0, 0, 3}});
                    });
  folder.write("a", "old");
  expect_user_error(ExitCode::CannotWrite, cat(folder / "a", ": cannot write: File exists"),
                    [&] { reserve_files(folder.path(), files); });
  EXPECT_THROW(write_ranges(folder.path(), files, std::vector<FileRange>{{0, 0, 3}},
                            [](size_t, int64_t, std::span<std::byte>) {
                              throw DeviceError("the device is gone");
                            }),
               DeviceError);
  EXPECT_EQ(folder.read("a"), "old");
}

// The order in which ranks report does not matter.
TEST(MakeManifest, BlocksOfAllRanksAreSorted) {
  const std::vector<PlannedFile> files = {{"a", 10}, {"none", 0}, {"b", 4}};
  const Manifest manifest = make_manifest(1, files, {{2, 0, 4, 3}, {0, 6, 4, 2}, {0, 0, 6, 1}});
  EXPECT_EQ(
      manifest,
      (Manifest{.step = 1, .files = {{"a", {{6, 1}, {4, 2}}}, {"none", {}}, {"b", {{4, 3}}}}}));
}

TEST(MakeManifest, EveryByteIsCoveredOnce) {
  EXPECT_EQ(internal_error_of({{0, 0, 4, 0}, {0, 5, 5, 0}, {2, 0, 4, 0}}),
            ": check failed: block.offset == reached: a: a block at 5 after 4 bytes");
  EXPECT_EQ(internal_error_of({{0, 0, 6, 0}, {0, 5, 5, 0}, {2, 0, 4, 0}}),
            ": check failed: block.offset == reached: a: a block at 5 after 6 bytes");
  EXPECT_EQ(internal_error_of({{0, 0, 10, 0}, {0, 0, 10, 0}, {2, 0, 4, 0}}),
            ": check failed: block.offset == reached: a: a block at 0 after 10 bytes");
  EXPECT_EQ(internal_error_of({{0, 0, 9, 0}, {2, 0, 4, 0}}),
            ": check failed: reached == files[i].bytes: a: 9 of 10 bytes were written");
  EXPECT_EQ(internal_error_of({{0, 0, 10, 0}}),
            ": check failed: reached == files[i].bytes: b: 0 of 4 bytes were written");
  EXPECT_EQ(internal_error_of({{0, 0, 10, 0}, {2, 0, 5, 0}}),
            ": check failed: reached == files[i].bytes: b: 5 of 4 bytes were written");
  EXPECT_EQ(internal_error_of({{0, 0, 10, 0}, {2, 0, 4, 0}, {3, 0, 1, 0}}),
            ": check failed: next == blocks.size(): a block of no file");
}

}  // namespace
}  // namespace weft
