// Preparing text: exact tokens, the split, and failures that leave nothing behind.
#include "data/prepare.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "data/token_file.h"
#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Names = std::vector<std::string>;

// Progress is written to a scratch file that can be read back.
class PrepareTest : public testing::Test {
 protected:
  ~PrepareTest() override { std::fclose(progress_); }

  PrepareOptions options(std::vector<std::string> inputs,
                         TokenizerKind kind = TokenizerKind::Char) {
    return {.inputs = std::move(inputs),
            .output_folder = folder_ / "out",
            .tokenizer = kind,
            .validation_fraction = 0.1,
            .progress = {.stream = progress_, .live = false}};
  }

  void expect_error(ExitCode code, const std::string& message, const PrepareOptions& options) {
    expect_user_error(code, message, [&] { prepare(options); });
  }

  static std::string text_of(const TokenFile& file) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < file.size(); ++i) ids.push_back(static_cast<int32_t>(file.at(i)));
    return file.tokenizer().decode(ids);
  }

  TempFolder folder_;
  std::FILE* progress_ = std::tmpfile();
};

TEST_F(PrepareTest, CharactersAreSortedAndSplitByCount) {
  // 19 characters in 21 bytes: int(19 * 0.9) = 17 train, 2 validate.
  const std::string text = "hello \xc3\xa9world\xc3\xa9 xyzzy";
  const auto result = prepare(options({folder_.write("a.txt", text)}));
  EXPECT_EQ(result.train_tokens, 17);
  EXPECT_EQ(result.validation_tokens, 2);
  EXPECT_EQ(result.tokenizer.vocab_size(), 12);
  EXPECT_EQ(result.written, (Names{folder_ / "out/train.bin", folder_ / "out/val.bin"}));
  const auto train = TokenFile::open(result.written[0]);
  const auto validation = TokenFile::open(result.written[1]);
  EXPECT_EQ(train.at(0), 3);  // " dehlorwxyz" and e acute: h is the fourth
  EXPECT_EQ(train.vocab_size(), 12);
  EXPECT_EQ(text_of(train) + text_of(validation), text);
  EXPECT_EQ(train.info()->source, (Names{folder_ / "a.txt"}));
}

TEST_F(PrepareTest, BytesTakeAnyInput) {
  const auto result = prepare(
      options({folder_.write("a", std::string("\xff\0\x80 012345", 10))}, TokenizerKind::Byte));
  EXPECT_EQ(result.train_tokens, 9);
  EXPECT_EQ(result.validation_tokens, 1);
  const auto train = TokenFile::open(result.written[0]);
  EXPECT_EQ(train.at(0), 255);
  EXPECT_EQ(train.at(1), 0);
  EXPECT_EQ(train.vocab_size(), 256);
}

// Otherwise a run would validate on text that it was trained on.
TEST_F(PrepareTest, ValidationDataOfAnEarlierRunIsRemoved) {
  PrepareOptions all = options({folder_.write("a.txt", "hello world, hello again")});
  prepare(all);
  ASSERT_TRUE(std::filesystem::exists(folder_ / "out/val.bin"));
  all.validation_fraction = 0;
  const PrepareResult result = prepare(all);
  EXPECT_EQ(result.removed, folder_ / "out/val.bin");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/val.bin"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/val.bin.json"));
  EXPECT_EQ(prepare(all).removed, "");
}

TEST_F(PrepareTest, FoldersAreWalkedInOrderWithoutHiddenOrEmptyFiles) {
  std::filesystem::create_directories(folder_ / "in/b");
  std::filesystem::create_directories(folder_ / "in/.git");
  folder_.write("in/c.txt", "ccccc");
  folder_.write("in/b/z.txt", "zzzzz");
  folder_.write("in/a.txt", "aaaaa");
  folder_.write("in/empty.txt", "");
  folder_.write("in/.hidden", "x");
  folder_.write("in/.git/config", "x");
  folder_.write("last.txt", "lllll");
  const auto result = prepare(options({folder_ / "in", folder_ / "last.txt"}));
  EXPECT_EQ(text_of(TokenFile::open(result.written[0])), "aaaaazzzzzccccclll");
}

TEST_F(PrepareTest, PreparingAgainIntoAFolderOfTheInputsReadsOnlyTheText) {
  std::filesystem::create_directories(folder_ / "in");
  folder_.write("in/a.txt", "abcabcabcabc");
  PrepareOptions inside = options({folder_ / "in"});
  inside.output_folder = folder_ / "in/tokens";
  const auto first = prepare(inside);
  const auto second = prepare(inside);
  EXPECT_EQ(first.train_tokens, second.train_tokens);
  EXPECT_EQ(second.tokenizer.vocab_size(), 3);
}

TEST_F(PrepareTest, WithoutValidationThereIsOneFile) {
  PrepareOptions all = options({folder_.write("a.txt", "abc")});
  all.validation_fraction = 0.0;
  const auto result = prepare(all);
  EXPECT_EQ(result.train_tokens, 3);
  EXPECT_EQ(result.written, (Names{folder_ / "out/train.bin"}));
}

TEST_F(PrepareTest, ShowsProgress) {
  prepare(options({folder_.write("a.txt", "0123456789")}));
  std::rewind(progress_);
  char line[64];
  ASSERT_NE(std::fgets(line, sizeof line, progress_), nullptr);
  EXPECT_STREQ(line, "prepare: 50%\n");
  ASSERT_NE(std::fgets(line, sizeof line, progress_), nullptr);
  EXPECT_STREQ(line, "prepare: 100%\n");
}

TEST_F(PrepareTest, ShowsProgressWithinAFile) {
  prepare(options({folder_.write("a.txt", std::string(5 << 20, 'x'))}, TokenizerKind::Byte));
  std::rewind(progress_);
  std::string shown;
  for (int c; (c = std::fgetc(progress_)) != EOF;) shown += static_cast<char>(c);
  std::string expected;
  for (int percent = 10; percent <= 100; percent += 10)
    expected += cat("prepare: ", percent, "%\n");
  EXPECT_EQ(shown, expected);
}

TEST_F(PrepareTest, BadInputLeavesNothingBehind) {
  const std::string good = folder_.write("good.txt", "0123456789");
  const std::string bad = folder_.write("bad.txt", "0123\xff");
  expect_error(ExitCode::InputFile,
               cat(bad, ": invalid UTF-8 at byte 4; convert the file or use the byte tokenizer"),
               options({good, bad}));
  expect_error(ExitCode::InputFile,
               cat(folder_ / "none", ": cannot open the file: No such file or directory"),
               options({good, folder_ / "none"}));
  expect_error(ExitCode::InputFile,
               "the inputs hold 1 token, too few to split into training and validation",
               options({folder_.write("one.txt", "1")}));
  std::filesystem::create_directories(folder_ / "empty");
  expect_error(ExitCode::InputFile, cat(folder_ / "empty", ": the folder holds no text files"),
               options({folder_ / "empty"}));
  EXPECT_FALSE(path_exists(folder_ / "out"));
}

TEST_F(PrepareTest, BadOptions) {
  const std::string good = folder_.write("good.txt", "0123456789");
  expect_error(ExitCode::Config, "no input given, expected text files or folders", options({}));
  PrepareOptions half = options({good});
  half.validation_fraction = 1.0;
  expect_error(
      ExitCode::Config,
      "command line: --validation-fraction 1 is out of range, expected 0 or more and below 1",
      half);
  std::filesystem::create_directories(folder_ / "out");
  expect_error(
      ExitCode::Config,
      cat(folder_ / "out", ": is an input and the output folder; choose another output folder"),
      options({folder_ / "out"}));
}

TEST_F(PrepareTest, TooManyCharactersForSixteenBits) {
  std::string text;
  for (char32_t c = 0x10000; c < 0x10000 + 65537; ++c) {
    text += static_cast<char>(0xf0 | (c >> 18));
    for (const int shift : {12, 6, 0}) text += static_cast<char>(0x80 | ((c >> shift) & 0x3f));
  }
  expect_error(ExitCode::InputFile,
               "the text has 65537 different characters, expected at most 65536; use the byte "
               "tokenizer",
               options({folder_.write("a.txt", text)}));
}

TEST_F(PrepareTest, AFullDiskKeepsTheOldFilesAndLeavesNoPartialOnes) {
  prepare(options({folder_.write("old.txt", "abcabcabcabc")}));
  const std::string before = folder_.read("out/train.bin");
  const std::string large = folder_.write("large.txt", std::string(100000, 'x'));
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit lowered{50000, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &lowered);
  expect_error(ExitCode::CannotWrite,
               cat(folder_ / "out/train.bin", ": cannot write: File too large"), options({large}));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder_.read("out/train.bin"), before);
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 4);
}

// The progress stream rewrites the input at its first line, between the two passes.
TEST_F(PrepareTest, AnInputThatChangesIsNoticed) {
  struct Change {
    std::string path;
    std::string text;
  };
  const cookie_io_functions_t change_on_write = {
      .read = nullptr,
      .write =
          [](void* cookie, const char*, size_t size) {
            const auto* change = static_cast<const Change*>(cookie);
            std::ofstream(change->path, std::ios::binary) << change->text;
            return static_cast<ssize_t>(size);
          },
      .seek = nullptr,
      .close = nullptr};
  for (const char* text : {"01234567890", "012345678", "012345678x"}) {
    Change change{folder_.write("a.txt", "0123456789"), text};
    PrepareOptions watched = options({change.path});
    watched.progress.stream = ::fopencookie(&change, "w", change_on_write);
    expect_error(ExitCode::InputFile, "an input changed while it was read; prepare again", watched);
    std::fclose(watched.progress.stream);
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "out"));
  }
}

TEST_F(PrepareTest, UnreadableFolder) {
  const std::filesystem::path locked = folder_ / "locked";
  std::filesystem::create_directories(locked);
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  // The superuser can read every folder, so drop privileges temporarily.
  const uid_t before = ::geteuid();
  if (before == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  expect_error(ExitCode::InputFile,
               cat(locked.string(), ": cannot read the folder: Permission denied"),
               options({locked.string()}));
  ASSERT_EQ(::seteuid(before), 0);
  std::filesystem::permissions(locked, std::filesystem::perms::all);
}

TEST_F(PrepareTest, UnwritableFolder) {
  const std::string good = folder_.write("good.txt", "0123456789");
  folder_.write("out", "a file in the way");
  expect_error(ExitCode::CannotWrite,
               cat(folder_ / "out", ": cannot create the folder: Not a directory"),
               options({good}));
}

}  // namespace
}  // namespace weft
