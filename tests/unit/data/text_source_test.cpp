// Waves of chunks across files: no byte is lost or read twice.
#include "data/text_source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_folder.h"
#include "support/tiny_bpe.h"
#include "support/user_error.h"

namespace weft {
namespace {

std::vector<TextSpan> all_of(const std::vector<SourceFile>& files) {
  std::vector<TextSpan> spans;
  for (const SourceFile& file : files) spans.push_back({&file, 0, file.size});
  return spans;
}

TEST(TextSource, AWaveHoldsManySmallFiles) {
  const TempFolder folder;
  std::vector<std::string> paths;
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    const std::string part = cat("text ", i, "\n");
    text += part;
    paths.push_back(folder.write(cat("f", i), part));
  }
  const std::vector<SourceFile> files = look_at_files(paths);
  EXPECT_EQ(total_size(files), static_cast<int64_t>(text.size()));
  const BpeTokenizer tokenizer(tiny_bpe_parts());
  const std::vector<TextSpan> spans = all_of(files);
  TextPlace place;
  std::vector<size_t> waves;
  std::string read;
  while (place.span < spans.size()) {
    const std::vector<TextChunk> wave = take_wave(spans, place, tokenizer);
    waves.push_back(wave.size());
    for (const TextChunk& chunk : wave) read += chunk.range.text();
  }
  // Limited, because each of them is a map.
  EXPECT_EQ(waves, (std::vector<size_t>{4096, 904}));
  EXPECT_EQ(read, text);
  EXPECT_TRUE(take_wave(spans, place, tokenizer).empty());
}

TEST(TextSource, AWaveOfLargeFilesFillsTheThreads) {
  const TempFolder folder;
  std::string text;
  while (text.size() < (20U << 20)) text += "abc ab bc\n";
  const std::vector<SourceFile> files =
      look_at_files({folder.write("a", text), folder.write("b", text)});
  const BpeTokenizer tokenizer(tiny_bpe_parts());
  // The second part of the first file, then the second file.
  const int64_t begin = files[0].size - (10 << 20);
  const std::vector<TextSpan> spans = {{files.data(), begin, files[0].size},
                                       {&files[1], 0, files[1].size}};
  TextPlace place;
  const std::vector<TextChunk> wave = take_wave(spans, place, tokenizer);
  EXPECT_EQ(wave.size(), 32U);
  EXPECT_EQ(wave.front().range.begin, begin);
  EXPECT_EQ(place.span, 2U);
  // Continues in the middle of a file.
  TextPlace middle{.span = 1, .offset = wave[20].range.begin};
  const std::vector<TextChunk> rest = take_wave(spans, middle, tokenizer);
  ASSERT_EQ(rest.size(), 12U);
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].range.begin, wave[20 + i].range.begin);
    EXPECT_EQ(rest[i].range.end, wave[20 + i].range.end);
  }
}

TEST(TextSource, AFileThatChangesIsNoticed) {
  const TempFolder folder;
  const std::vector<SourceFile> files = look_at_files({folder.write("a", "abc")});
  folder.write("a", "abcabc");
  TextPlace place;
  expect_user_error(ExitCode::InputFile,
                    cat(folder / "a", ": the file changed while it was read; start again"),
                    [&] { take_wave(all_of(files), place, BpeTokenizer(tiny_bpe_parts())); });
}

// Detected before parsing, both when the file is split into slices and when a slice is read.
TEST(TextSource, ALineThatIsTooLongIsRefused) {
  const TempFolder folder;
  const std::string path = folder.write("long.jsonl", "{}\n");
  const int64_t size = 3 + kMaxLineBytes + 1;
  std::filesystem::resize_file(path, static_cast<uintmax_t>(size));  // filled with zero bytes
  const MappedFile file = MappedFile::open(path);
  const BpeTokenizer tokenizer(tiny_bpe_parts());
  expect_user_error(ExitCode::InputFile,
                    cat(path, ":2: line has ", kMaxLineBytes + 1, " bytes, expected at most ",
                        kMaxLineBytes, "; split the document"),
                    [&] {
                      visit_documents({&file, 3, size}, "text", [](auto&&...) {});
                    });
  std::filesystem::resize_file(path, static_cast<uintmax_t>(size + 4));
  const MappedFile longer = MappedFile::open(path);
  expect_user_error(
      ExitCode::InputFile,
      cat(path, ":2: line has more than ", kMaxLineBytes, " bytes; split the document"), [&] {
        take_front({&longer, 0, size + 4}, 6, tokenizer);
      });
}

}  // namespace
}  // namespace weft
