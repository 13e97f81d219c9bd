#include "base/disk.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace weft {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw UserError(ExitCode::CannotWrite, cat(path, ": cannot ", what, ": ", reason_of(error)));
}

// Reserves bytes of a new file. A file system that cannot reserve sets the size alone.
int reserve(int descriptor, int64_t bytes) {
  if (bytes == 0) return 0;
  int error = 0;
  do {
    error = ::fallocate(descriptor, 0, 0, bytes) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != EOPNOTSUPP && error != ENOSYS) return error;
  return ::ftruncate(descriptor, bytes) == 0 ? 0 : errno;
}

// What the holder of a lock wrote into it; from the open file, as the holder may remove it.
std::string holder_of(int descriptor) {
  char text[256] = {};
  const ssize_t length = ::pread(descriptor, text, sizeof text, 0);
  return std::string(
      trim(std::string_view(text, static_cast<size_t>(std::max<ssize_t>(length, 0)))));
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

BlockFile::BlockFile(std::string path, Descriptor descriptor)
    : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

BlockFile BlockFile::create(const std::string& path, int64_t bytes) {
  BlockFile file(
      path,
      Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666)));
  if (file.descriptor_.get() < 0) file.fail(errno);
  if (const int error = reserve(file.descriptor_.get(), bytes); error != 0) {
    if (error != ENOSPC) file.fail(error);
    const std::string folder = folder_of(path);
    throw UserError(ExitCode::CannotWrite,
                    cat(path, ": cannot reserve ", bytes, " bytes: ", reason_of(error), ", ",
                        free_disk_bytes(folder), " bytes are free"));
  }
  return file;
}

BlockFile BlockFile::open(const std::string& path) {
  BlockFile file(path, Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW)));
  if (file.descriptor_.get() < 0) file.fail(errno);
  return file;
}

void BlockFile::write(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t until_page = (kPage - offset % kPage) % kPage;
    const int64_t until_aligned = -reinterpret_cast<intptr_t>(bytes.data()) & (kPage - 1);
    int64_t length = std::ssize(bytes);
    const bool direct = until_page == 0 && until_aligned == 0 && length >= kPage;
    if (set_direct(direct)) {
      length -= length % kPage;
    } else if (until_page == until_aligned && until_page != 0) {
      length = std::min(length, until_page);
    }
    const ssize_t wrote =
        ::pwrite(descriptor_.get(), bytes.data(), static_cast<size_t>(length), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EINVAL && is_direct_) {
      can_be_direct_ = false;  // other devices need larger multiples
      continue;
    }
    if (wrote < 0) fail(errno);
    if (wrote == 0) fail(ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += wrote;
  }
}

bool BlockFile::set_direct(bool direct) {
  direct = direct && can_be_direct_;
  if (direct == is_direct_) return direct;
  const int flags = ::fcntl(descriptor_.get(), F_GETFL);
  if (flags < 0) fail(errno);
  if (::fcntl(descriptor_.get(), F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) {
    if (!direct) fail(errno);
    can_be_direct_ = false;
    return false;
  }
  is_direct_ = direct;
  return direct;
}

void BlockFile::finish() {
  if (::fsync(descriptor_.get()) != 0) fail(errno);
  close();
}

// Some file systems report a full disk only here.
void BlockFile::close() {
  if (::close(descriptor_.release()) != 0) fail(errno);
}

void BlockFile::fail(int error) const {
  weft::fail(path_, "write", error);
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) fail(path, "create the folder", errno);
}

void sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) fail(path, "open the folder", errno);
  // Some file systems cannot sync a folder (EINVAL).
  if (::fsync(folder.get()) != 0 && errno != EINVAL) fail(path, "sync the folder", errno);
}

void rename_durably(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail(from, ("rename it to " + to).c_str(), errno);
  }
  sync_folder(folder_of(to));
}

void remove_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail(path, "remove the folder", error.value());
}

std::vector<std::string> folder_names(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  const int code = error.value();
  if (code != 0 && code != ENOENT && code != ENOTDIR) fail(path, "read the folder", code);
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t random_tag() {
  uint64_t tag = 0;
  CHECK(::getrandom(&tag, sizeof tag, 0) == sizeof tag, "no random bytes: ", reason_of(errno));
  return tag;
}

int64_t free_disk_bytes(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) fail(path, "find its free space", errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

// The holder removes the file before it unlocks it. So a lock counts only if the path still refers
// to the locked file.
FolderLock::FolderLock(const std::string& folder, std::chrono::milliseconds patience,
                       std::string_view advice)
    : folder_(folder), path_(folder + "/.lock") {
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    make_directories(folder);
    descriptor_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (descriptor_.get() < 0 && errno == ENOENT) continue;  // the holder removed the folder
    if (descriptor_.get() < 0) fail(path_, "write", errno);
    // On a file system without locks we continue without one.
    while (::flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      if (std::chrono::steady_clock::now() >= end) {
        throw UserError(ExitCode::CannotWrite, cat(folder, ": in use by another run (",
                                                   holder_of(descriptor_.get()), "); ", advice));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  } while (!names_file(path_, descriptor_.get()));
  const std::string holder = cat("process ", ::getpid(), " on ", host_name(), "\n");
  // For the message above alone; the lock works without it.
  std::ignore = ::ftruncate(descriptor_.get(), 0);
  std::ignore = ::pwrite(descriptor_.get(), holder.data(), holder.size(), 0);
}

FolderLock::~FolderLock() {
  if (!names_file(path_, descriptor_.get())) return;
  ::unlink(path_.c_str());
  ::rmdir(folder_.c_str());  // fails unless it is empty
}

}  // namespace weft
