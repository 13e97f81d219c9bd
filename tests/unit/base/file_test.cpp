// Files: reads return what was written; every failure names the path and the reason, and leaves
// nothing behind.
#include "base/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Names = std::vector<std::string>;

// Lowers the file size limit of this process for one scope: a real short write, then EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    before_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lowered{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &lowered);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, before_handler_);
  }

 private:
  rlimit before_{};
  sighandler_t before_handler_;
};

// The limits that stop a run although memory is available.
TEST(File, AReasonNamesTheLimit) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(reason_of(ENOENT), "No such file or directory");
  EXPECT_EQ(reason_of(EMFILE), cat("Too many open files, the limit of a process is ",
                                   limit.rlim_cur, "; raise it with ulimit -n"));
  EXPECT_EQ(reason_of(ENFILE),
            "Too many open files in system; raise the machine's limit, fs.file-max");
}

TEST(File, APathThatNoCallTakesIsShortened) {
  const std::string path(60000, 'p');
  const std::string message =
      path.substr(0, 60) + "...: the path has 60000 characters, expected at most 4095";
  expect_user_error(ExitCode::InputFile, message, [&] { read_text_file(path, 10); });
  expect_user_error(ExitCode::InputFile, message, [&] { MappedFile::open(path); });
  expect_user_error(ExitCode::CannotWrite, message, [&] { OutputFile file(path); });
  expect_user_error(ExitCode::CannotWrite, message, [&] { make_directories(path); });
}

std::string text_of(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST(MappedFile, ShowsTheBytesAndMoves) {
  const TempFolder folder;
  MappedFile first = MappedFile::open(folder.write("a", "hello"));
  MappedFile second = std::move(first);
  EXPECT_EQ(text_of(second.bytes()), "hello");
  EXPECT_EQ(second.path(), folder / "a");
  second = MappedFile::open(folder.write("b", "other"));
  EXPECT_EQ(text_of(second.bytes()), "other");
}

TEST(MappedFile, FailuresAreToldApart) {
  const TempFolder folder;
  expect_user_error(ExitCode::InputFile,
                    cat(folder / "none", ": cannot open the file: No such file or directory"),
                    [&] { MappedFile::open(folder / "none"); });
  expect_user_error(ExitCode::InputFile, cat(folder.path(), ": is a folder, expected a file"),
                    [&] { MappedFile::open(folder.path()); });
  expect_user_error(ExitCode::InputFile, cat(folder / "empty", ": file is empty"),
                    [&] { MappedFile::open(folder.write("empty", "")); });
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_user_error(ExitCode::InputFile, cat(folder / "pipe", ": is not a regular file"),
                    [&] { MappedFile::open(folder / "pipe"); });
}

TEST(MappedFile, UnreadableFile) {
  const TempFolder folder;
  const std::string path = folder.write("secret", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  // The superuser can read every file, so drop privileges temporarily.
  const uid_t before = ::geteuid();
  if (before == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  expect_user_error(ExitCode::InputFile, cat(path, ": cannot open the file: Permission denied"),
                    [&] { MappedFile::open(path); });
  ASSERT_EQ(::seteuid(before), 0);
}

// A sparse file larger than the address space left.
TEST(MappedFile, FileTooLargeToMap) {
  const TempFolder folder;
  const std::string path = folder.write("large", "x");
  std::filesystem::resize_file(path, uintmax_t{64} << 30);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit lowered{pages * static_cast<rlim_t>(::getpagesize()) + (rlim_t{1} << 30),
                       before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &lowered), 0);
  expect_user_error(ExitCode::InputFile, cat(path, ": cannot map the file: Cannot allocate memory"),
                    [&] { MappedFile::open(path); });
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
}

TEST(InputFile, ReadsByPosition) {
  const TempFolder folder;
  const InputFile file = InputFile::open(folder.write("a", "hello world"));
  EXPECT_EQ(file.size(), 11);
  std::string text(5, ' ');
  file.read(6, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "world");
}

TEST(InputFile, AFileThatBecomesShorterIsAnError) {
  const TempFolder folder;
  const std::string path = folder.write("a", "hello world");
  const InputFile file = InputFile::open(path);
  std::filesystem::resize_file(path, 8);
  std::string text(5, ' ');
  expect_user_error(ExitCode::InputFile,
                    path +
                        ": file ends before byte 8, expected 11 bytes as when it was opened; "
                        "restore the file and start again",
                    [&] { file.read(6, std::as_writable_bytes(std::span(text))); });
}

TEST(ReadTextFile, FailureWhileReading) {
  expect_user_error(ExitCode::InputFile, "/proc/self/mem: cannot read the file: Input/output error",
                    [] { read_text_file("/proc/self/mem", 10); });
}

TEST(ReadTextFile, ReadsUpToTheLimit) {
  const TempFolder folder;
  const std::string path = folder.write("a", "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  EXPECT_EQ(read_text_file(folder.write("empty", ""), 5), "");
  expect_user_error(ExitCode::InputFile, cat(path, ": file has 5 bytes, expected at most 4"),
                    [&] { read_text_file(path, 4); });
}

TEST(ReadTextFile, TheLimitHoldsForFilesThatHideTheirSize) {
  expect_user_error(ExitCode::InputFile,
                    "/proc/self/status: file has more than 10 bytes, expected at most that",
                    [] { read_text_file("/proc/self/status", 10); });
}

TEST(OutputFile, AppearsOnlyWhenCommitted) {
  const TempFolder folder;
  {
    OutputFile file(folder / "out");
    file.write("one ");
    file.write("two");
    EXPECT_EQ(file.size(), 7);
    EXPECT_FALSE(path_exists(folder / "out"));
    file.commit();
  }
  EXPECT_EQ(folder.read("out"), "one two");
  EXPECT_EQ(folder.names(), (Names{"out"}));
}

TEST(OutputFile, WithoutCommitNothingIsLeftAndTheOldFileStays) {
  const TempFolder folder;
  folder.write("out", "old");
  {
    OutputFile file(folder / "out");
    file.write("new");
    file.finish();
    EXPECT_EQ(folder.names().size(), 2u);
  }
  EXPECT_EQ(folder.read("out"), "old");
  EXPECT_EQ(folder.names(), (Names{"out"}));
}

TEST(OutputFile, ReplacesWhatAKilledProcessLeft) {
  const TempFolder folder;
  folder.write("out.partial", "a long leftover");
  OutputFile(folder / "out").commit();
  EXPECT_EQ(folder.read("out"), "");
  folder.write("out.partial", "another");
  { OutputFile file(folder / "out"); }
  EXPECT_EQ(folder.names(), (Names{"out"}));
}

// The lock is held until the rename: a second writer would mix its data into the first one's file.
TEST(OutputFile, HasOneWriterAtATime) {
  const TempFolder folder;
  const auto expect_busy = [&] {
    expect_user_error(ExitCode::CannotWrite,
                      cat(folder / "out", ": another process is writing it; wait for it to finish"),
                      [&] { OutputFile(folder / "out"); });
  };
  OutputFile file(folder / "out");
  expect_busy();
  file.write("whole");
  file.finish();
  expect_busy();
  file.commit();
  EXPECT_EQ(folder.read("out"), "whole");
  OutputFile(folder / "out").commit();
  EXPECT_EQ(folder.names(), (Names{"out"}));
}

TEST(OutputFile, LeftoversAreRemovedUnlessSomebodyWritesThem) {
  const TempFolder folder;
  folder.write("left.partial", "x");
  OutputFile busy(folder / "busy");
  for (const char* name : {"left", "busy", "none"}) remove_partial(folder / name);
  EXPECT_EQ(folder.names(), (Names{"busy.partial"}));
}

TEST(OutputFile, MovedFromLeavesThePartialFileAlone) {
  const TempFolder folder;
  std::vector<OutputFile> files;
  files.emplace_back(folder / "a");
  files.emplace_back(folder / "b");
  for (OutputFile& file : files) file.write("x");
  for (OutputFile& file : files) file.commit();
  EXPECT_EQ(folder.names(), (Names{"a", "b"}));
}

TEST(OutputFile, OutOfSpaceInTheMiddleLeavesNothing) {
  const TempFolder folder;
  expect_user_error(ExitCode::CannotWrite, cat(folder / "out", ": cannot write: File too large"),
                    [&] {
                      const FileSizeLimit limit(1000);
                      OutputFile file(folder / "out");
                      file.write(std::string(600, 'a'));
                      file.write(std::string(600, 'b'));
                    });
  EXPECT_EQ(folder.names(), Names{});
}

TEST(OutputFile, FailuresNameTheReason) {
  const TempFolder folder;
  expect_user_error(ExitCode::CannotWrite,
                    cat(folder / "no/out", ": cannot write: No such file or directory"),
                    [&] { OutputFile(folder / "no/out"); });
  expect_user_error(ExitCode::CannotWrite, cat(folder.path(), ": cannot write: Is a directory"),
                    [&] { OutputFile(folder.path()); });
  folder.write("file", "x");
  expect_user_error(ExitCode::CannotWrite,
                    cat(folder / "file/out", ": cannot write: Not a directory"),
                    [&] { OutputFile(folder / "file/out"); });
}

TEST(OutputFile, ResumesWhatIsGood) {
  const TempFolder folder;
  folder.write("a.partial", "good, bad");
  {
    OutputFile file = OutputFile::resume(folder / "a", 4);
    EXPECT_EQ(file.size(), 4);
    expect_user_error(ExitCode::CannotWrite,
                      cat(folder / "a", ": another process is writing it; wait for it to finish"),
                      [&] { OutputFile::resume(folder / "a", 0); });
    file.write(" work");
    file.sync();
    EXPECT_EQ(folder.read("a.partial"), "good work");
    file.commit();
  }
  EXPECT_EQ(folder.read("a"), "good work");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a"}));
  expect_user_error(
      ExitCode::InputFile,
      cat(folder / "b",
          ".partial: file has 0 bytes, expected at least 4 to resume; remove it and start again"),
      [&] { OutputFile::resume(folder / "b", 4); });
}

TEST(WriteTextFile, Writes) {
  const TempFolder folder;
  write_text_file(folder / "a", "text");
  EXPECT_EQ(folder.read("a"), "text");
}

TEST(MakeDirectories, MakesThoseAboveAndAcceptsExistingOnes) {
  const TempFolder folder;
  make_directories(folder / "a/b/c");
  make_directories(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  folder.write("file", "x");
  expect_user_error(ExitCode::CannotWrite,
                    cat(folder / "file/b", ": cannot create the folder: Not a directory"),
                    [&] { make_directories(folder / "file/b"); });
}

}  // namespace
}  // namespace weft
