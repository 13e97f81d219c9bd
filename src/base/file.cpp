// Every system call is checked: short writes and EINTR are retried, all other failures are
// reported.
#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/partial_files.h"
#include "base/stop.h"

namespace weft {

namespace {

struct OpenedFile {
  Descriptor descriptor;
  int64_t size;
};

// A path too long for the system is not repeated in full in the message.
void check_length(const std::string& path, ExitCode code) {
  if (path.size() <= kLongestPath) return;
  throw UserError(code, cat(shortened(path), ": the path has ", path.size(),
                            " characters, expected at most ", kLongestPath));
}

// Opens a regular file for reading. O_NONBLOCK keeps a named pipe from blocking here.
OpenedFile open_regular(const std::string& path) {
  check_length(path, ExitCode::InputFile);
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  INPUT_CHECK(descriptor.get() >= 0, path, ": cannot open the file: ", reason_of(errno));
  struct stat status {};
  INPUT_CHECK(::fstat(descriptor.get(), &status) == 0, path,
              ": cannot read the file: ", reason_of(errno));
  INPUT_CHECK(!S_ISDIR(status.st_mode), path, ": is a folder, expected a file");
  INPUT_CHECK(S_ISREG(status.st_mode), path, ": is not a regular file");
  return {std::move(descriptor), static_cast<int64_t>(status.st_size)};
}

}  // namespace

std::string reason_of(int error) {
  std::string text = std::strerror(error);
  if (error == ENFILE) return text + "; raise the machine's limit, fs.file-max";
  if (error != EMFILE) return text;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return cat(text, ", the limit of a process is ", limit.rlim_cur, "; raise it with ulimit -n");
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

void Descriptor::reset() {
  if (value_ >= 0) ::close(value_);
  value_ = -1;
}

MappedFile MappedFile::open(const std::string& path) {
  const OpenedFile file = open_regular(path);
  INPUT_CHECK(file.size > 0, path, ": file is empty");
  const auto size = static_cast<size_t>(file.size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor.get(), 0);
  INPUT_CHECK(data != MAP_FAILED, path, ": cannot map the file: ", reason_of(errno));
  return MappedFile(path, {static_cast<const std::byte*>(data), size});
}

MappedFile::MappedFile(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

InputFile InputFile::open(const std::string& path) {
  OpenedFile file = open_regular(path);
  return InputFile(path, std::move(file.descriptor), file.size);
}

InputFile::InputFile(std::string path, Descriptor descriptor, int64_t size)
    : path_(std::move(path)), descriptor_(std::move(descriptor)), size_(size) {}

void InputFile::read(int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_.get(), bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    INPUT_CHECK(got >= 0, path_, ": cannot read the file: ", std::strerror(errno));
    INPUT_CHECK(got > 0, path_, ": file ends before byte ", offset, ", expected ", size_,
                " bytes as when it was opened; restore the file and start again");
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool names_file(const std::string& path, int descriptor) {
  struct stat named {
  }, opened{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(descriptor, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

bool path_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

std::string read_text_file(const std::string& path, int64_t max_bytes) {
  const OpenedFile file = open_regular(path);
  INPUT_CHECK(file.size <= max_bytes, path, ": file has ", file.size, " bytes, expected at most ",
              max_bytes);
  // Files under /proc report size 0 and a file may grow, so the limit applies to the bytes read.
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.descriptor.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    INPUT_CHECK(got >= 0, path, ": cannot read the file: ", reason_of(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    INPUT_CHECK(static_cast<int64_t>(text.size()) <= max_bytes, path, ": file has more than ",
                max_bytes, " bytes, expected at most that");
  }
}

OutputFile::OutputFile(std::string path) : OutputFile(std::move(path), 0) {}

OutputFile OutputFile::resume(std::string path, int64_t keep) {
  return OutputFile(std::move(path), keep);
}

OutputFile::OutputFile(std::string path, int64_t keep) : path_(std::move(path)) {
  check_length(path_, ExitCode::CannotWrite);
  // Detected here, before the work, rather than at the rename.
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) fail(EISDIR);
  open_locked(path_ + ".partial");
  if (::fstat(descriptor_, &status) != 0) fail(errno);
  if (status.st_size < keep) {
    discard();
    throw UserError(ExitCode::InputFile,
                    cat(path_, ".partial: file has ", status.st_size, " bytes, expected at least ",
                        keep, " to resume; remove it and start again"));
  }
  if (::ftruncate(descriptor_, keep) != 0) fail(errno);
  if (::lseek(descriptor_, keep, SEEK_SET) != keep) fail(errno);
  size_ = keep;
}

// Between opening and locking, another writer may have renamed or removed the file. The lock then
// belongs to a file that we must not write.
void OutputFile::open_locked(const std::string& partial) {
  const BlockStopSignals held;  // until the signal handler knows the file
  do {
    close_all();
    descriptor_ = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(errno);
    lock_ = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
    if (lock_ < 0) fail(errno);
    // On a file system without locks we write without one.
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close_all();
      throw UserError(ExitCode::CannotWrite,
                      cat(path_, ": another process is writing it; wait for it to finish"));
    }
  } while (!names_file(partial, descriptor_));
  partial_ = partial;
  place_ = remember_partial(partial_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      lock_(std::exchange(other.lock_, -1)),
      place_(std::exchange(other.place_, -1)),
      size_(other.size_) {}

OutputFile::~OutputFile() {
  discard();
}

void OutputFile::write(std::span<const std::byte> bytes) {
  CHECK(descriptor_ >= 0, path_, " is not open for writing");
  // One write call moves at most about 2 GiB.
  constexpr size_t kMax = size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMax));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(errno);
    if (wrote == 0) fail(ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    size_ += wrote;
  }
}

void OutputFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void OutputFile::sync() {
  CHECK(descriptor_ >= 0, path_, " is not open for writing");
  if (::fsync(descriptor_) != 0) fail(errno);
}

void OutputFile::finish() {
  sync();
  // Some file systems report a full disk only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
}

void OutputFile::commit() {
  CHECK(!partial_.empty(), path_, " was committed or discarded before");
  if (descriptor_ >= 0) finish();
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail(errno);
  partial_.clear();
  forget_partial(std::exchange(place_, -1));
  close_all();
  const Descriptor folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder (EINVAL); the rename has happened all the same.
  if (folder.get() < 0 || (::fsync(folder.get()) != 0 && errno != EINVAL)) fail(errno);
}

void OutputFile::fail(int error) {
  discard();
  throw UserError(ExitCode::CannotWrite, cat(path_, ": cannot write: ", reason_of(error)));
}

void OutputFile::close_all() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
}

// Removed while the lock is held, so it cannot be another writer's file.
void OutputFile::discard() noexcept {
  if (!partial_.empty()) ::unlink(partial_.c_str());
  partial_.clear();
  forget_partial(std::exchange(place_, -1));
  close_all();
}

void remove_partial(const std::string& path) {
  if (!path_exists(path + ".partial")) return;
  try {
    const OutputFile taken_over(path);
  } catch (const UserError&) {
    // Another writer holds it, or it cannot be removed.
  }
}

void write_text_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

void make_directories(const std::string& path) {
  check_length(path, ExitCode::CannotWrite);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw UserError(ExitCode::CannotWrite,
                    cat(path, ": cannot create the folder: ", reason_of(error.value())));
  }
}

}  // namespace weft
