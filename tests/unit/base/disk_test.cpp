// Files written at offsets, changes of folders, and the lock of a folder. Every failure names the
// path and the reason.
#include "base/disk.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

void expect_cannot_write(const std::string& message, const std::function<void()>& action) {
  expect_user_error(ExitCode::CannotWrite, message, action);
}

TEST(BlockFile, HoldsWhatWasWrittenAtOffsets) {
  const TempFolder folder;
  BlockFile::create(folder / "a", 10).finish();
  EXPECT_EQ(folder.read("a"), std::string(10, '\0'));  // the size is final from the start
  {
    BlockFile one = BlockFile::open(folder / "a");
    BlockFile two = BlockFile::open(folder / "a");
    two.write(6, bytes_of("6789"));
    one.write(0, bytes_of("012"));
    one.write(4, bytes_of(""));
    two.write(4, bytes_of("45"));
    one.finish();
    two.finish();
  }
  EXPECT_EQ(folder.read("a"), std::string("012\0"
                                          "456789",
                                          10));
}

TEST(BlockFile, AFileMayBeEmpty) {
  const TempFolder folder;
  BlockFile::create(folder / "a", 0).finish();
  EXPECT_EQ(folder.names(), Names{"a"});
  EXPECT_EQ(fs::file_size(folder / "a"), 0U);
}

// A checkpoint never writes through what somebody else put there.
TEST(BlockFile, CreateRefusesWhatExists) {
  const TempFolder folder;
  folder.write("file", "kept");
  fs::create_symlink(folder / "file", folder / "link");
  fs::create_symlink(folder / "none", folder / "dangling");
  for (const std::string name : {"file", "link", "dangling"}) {
    expect_cannot_write(cat(folder / name, ": cannot write: File exists"),
                        [&] { BlockFile::create(folder / name, 3); });
  }
  EXPECT_EQ(folder.read("file"), "kept");
  EXPECT_FALSE(fs::exists(folder / "none"));
}

TEST(BlockFile, OpenRefusesLinks) {
  const TempFolder folder;
  folder.write("file", "kept");
  fs::create_symlink(folder / "file", folder / "link");
  expect_cannot_write(cat(folder / "link", ": cannot write: Too many levels of symbolic links"),
                      [&] { BlockFile::open(folder / "link"); });
}

TEST(BlockFile, MissingFoldersAndFiles) {
  const TempFolder folder;
  const std::string path = folder / "missing/a";
  const std::string message = path + ": cannot write: No such file or directory";
  expect_cannot_write(message, [&] { BlockFile::create(path, 3); });
  expect_cannot_write(message, [&] { BlockFile::open(path); });
}

TEST(BlockFile, AFullDiskIsFoundWhenWriting) {
  BlockFile full = BlockFile::open("/dev/full");
  expect_cannot_write("/dev/full: cannot write: No space left on device",
                      [&] { full.write(0, bytes_of("abc")); });
}

// The limit gives a real failure of the reservation, and a short write before the failure.
TEST(BlockFile, AFileBeyondALimit) {
  const TempFolder folder;
  BlockFile::create(folder / "b", 4).finish();
  BlockFile b = BlockFile::open(folder / "b");
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit lowered{6, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &lowered);
  expect_cannot_write(cat(folder / "a", ": cannot write: File too large"),
                      [&] { BlockFile::create(folder / "a", 7); });
  expect_cannot_write(cat(folder / "b", ": cannot write: File too large"),
                      [&] { b.write(2, bytes_of("23456")); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
}

// A file system in memory refuses at once what is larger than itself; others would fill up first.
TEST(BlockFile, AFullDiskIsFoundBeforeAnythingIsWritten) {
  struct statfs status {};
  if (::statfs("/dev/shm", &status) != 0 || status.f_type != TMPFS_MAGIC || status.f_blocks == 0) {
    GTEST_SKIP() << "/dev/shm is no tmpfs of limited size";
  }
  const auto bytes =
      static_cast<int64_t>(status.f_blocks + 1) * static_cast<int64_t>(status.f_bsize);
  const std::string path = cat("/dev/shm/weft-test-", ::getpid());
  const std::string message = user_error_of([&] { BlockFile::create(path, bytes); });
  fs::remove(path);
  // How much is free changes while the test runs.
  EXPECT_TRUE(message.starts_with(
      cat(path, ": cannot reserve ", bytes, " bytes: No space left on device, ")))
      << message;
  EXPECT_TRUE(message.ends_with(" bytes are free")) << message;
}

TEST(Folders, AreMadeSyncedAndRemoved) {
  const TempFolder folder;
  make_folder(folder / "a");
  sync_folder(folder / "a");
  folder.write("a/file", "x");
  expect_cannot_write(cat(folder / "a", ": cannot create the folder: File exists"),
                      [&] { make_folder(folder / "a"); });
  expect_cannot_write(cat(folder / "b/c", ": cannot create the folder: No such file or directory"),
                      [&] { make_folder(folder / "b/c"); });
  expect_cannot_write(cat(folder / "b", ": cannot open the folder: No such file or directory"),
                      [&] { sync_folder(folder / "b"); });
  remove_folder(folder / "a");
  EXPECT_EQ(folder.names(), Names{});
  EXPECT_NO_THROW(remove_folder(folder / "a"));
}

// What a link in the folder refers to belongs to somebody else.
TEST(Folders, RemovingOneDoesNotFollowLinks) {
  const TempFolder folder;
  make_folder(folder / "kept");
  make_folder(folder / "removed");
  folder.write("kept/file", "x");
  fs::create_directory_symlink(folder / "kept", folder / "removed/link");
  remove_folder(folder / "removed");
  EXPECT_EQ(folder.names(), Names{"kept"});
  EXPECT_EQ(folder.read("kept/file"), "x");
}

TEST(Folders, ARenameReplacesNothingWithContents) {
  const TempFolder folder;
  for (const char* name : {"from", "full", "empty"}) make_folder(folder / name);
  folder.write("from/new", "x");
  folder.write("full/old", "y");
  folder.write("file", "z");
  const std::string start = folder / "from" + ": cannot rename it to " + folder.path();
  expect_cannot_write(start + "/full: Directory not empty",
                      [&] { rename_durably(folder / "from", folder / "full"); });
  expect_cannot_write(start + "/file: Not a directory",
                      [&] { rename_durably(folder / "from", folder / "file"); });
  expect_cannot_write(start + "/none/a: No such file or directory",
                      [&] { rename_durably(folder / "from", folder / "none/a"); });
  rename_durably(folder / "from", folder / "empty");
  EXPECT_EQ(folder.names(), (Names{"empty", "file", "full"}));
  EXPECT_EQ(folder.read("empty/new") + folder.read("full/old") + folder.read("file"), "xyz");
}

TEST(Folders, NamesAreSortedAndMayBeNone) {
  const TempFolder folder;
  EXPECT_EQ(folder_names(folder.path()), Names{});
  EXPECT_EQ(folder_names(folder / "missing"), Names{});
  for (const char* name : {"b", ".a", "c"}) folder.write(name, "");
  make_folder(folder / "B");
  EXPECT_EQ(folder_names(folder.path()), (Names{".a", "B", "b", "c"}));
}

TEST(Folders, FreeSpace) {
  const TempFolder folder;
  EXPECT_GT(free_disk_bytes(folder.path()), 0);
  expect_cannot_write(cat(folder / "a", ": cannot find its free space: No such file or directory"),
                      [&] { free_disk_bytes(folder / "a"); });
}

std::string in_use(const std::string& folder, pid_t holder) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return cat(folder, ": in use by another run (process ", holder, " on ", host,
             "); wait for it to end");
}

TEST(FolderLock, ASecondHolderIsRefused) {
  const TempFolder folder;
  const FolderLock lock(folder.path());
  for (int attempt = 0; attempt < 2; ++attempt) {  // a refused one does not release the first
    expect_cannot_write(in_use(folder.path(), ::getpid()), [&] { FolderLock(folder.path()); });
  }
  const TempFolder other;
  EXPECT_NO_THROW(FolderLock(other / "run"));
}

TEST(FolderLock, AHolderThatIsEndingIsWaitedFor) {
  const TempFolder folder;
  std::optional<FolderLock> first(folder.path());
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    first.reset();
  });
  EXPECT_NO_THROW(FolderLock(folder.path(), std::chrono::seconds(60)));
  ends.join();
}

TEST(FolderLock, LeavesNothingOfItsOwn) {
  const TempFolder folder;
  { const FolderLock lock(folder / "runs/empty"); }
  EXPECT_EQ(folder_names(folder / "runs"), Names{});
  {
    const FolderLock lock(folder / "runs/used");
    EXPECT_EQ(folder_names(folder / "runs/used"), Names{".lock"});
    folder.write("runs/used/result", "x");
  }
  EXPECT_EQ(folder_names(folder / "runs/used"), Names{"result"});
  EXPECT_NO_THROW(FolderLock(folder / "runs/used"));
}

// The lock is the kernel's; the file only names its holder.
TEST(FolderLock, TheFileOfADeadProcessDoesNotMatter) {
  const TempFolder folder;
  folder.write(".lock", "process 1 on a machine with a much longer name than this one has\n");
  const FolderLock lock(folder.path());
  expect_cannot_write(in_use(folder.path(), ::getpid()), [&] { FolderLock(folder.path()); });
}

// Whoever removes the file by hand lets a second run in; the first one must not remove its lock.
TEST(FolderLock, RemovesOnlyItsOwnFile) {
  const TempFolder folder;
  std::optional<FolderLock> first(folder.path());
  fs::remove(folder / ".lock");
  const FolderLock second(folder.path());
  first.reset();
  EXPECT_EQ(folder.names(), Names{".lock"});
  expect_cannot_write(in_use(folder.path(), ::getpid()), [&] { FolderLock(folder.path()); });
}

// A holder removes the file, so others may lock one that has no name any more: that does not count.
TEST(FolderLock, HasOneHolderAtATime) {
  const TempFolder folder;
  std::atomic<int> holders = 0, held = 0;
  const auto work = [&] {
    for (int attempt = 0; attempt < 500; ++attempt) {
      try {
        const FolderLock lock(folder / "run");
        EXPECT_EQ(++holders, 1);
        ++held;
        std::this_thread::yield();  // the others try meanwhile
        --holders;
      } catch (const UserError& error) {
        EXPECT_EQ(error.code(), ExitCode::CannotWrite) << error.what();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(held, 0);
  EXPECT_EQ(folder.names(), Names{});
}

TEST(FolderLock, EndsWithAKilledProcess) {
  const TempFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const FolderLock lock(folder.path());
      if (::write(ready[1], "x", 1) == 1) ::pause();
    } catch (...) {
    }
    ::_exit(1);
  }
  ::close(ready[1]);
  char got = 0;
  EXPECT_EQ(::read(ready[0], &got, 1), 1);
  expect_cannot_write(in_use(folder.path(), child), [&] { FolderLock(folder.path()); });
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  EXPECT_EQ(folder.names(), Names{".lock"});
  EXPECT_NO_THROW(FolderLock(folder.path()));
}

}  // namespace
}  // namespace weft
