// Files: read-only maps, reads at an offset, small text files, and output that appears under its
// name complete or not at all. Every failure is a UserError with the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

// The longest path that system calls accept.
constexpr size_t kLongestPath = 4095;

// The system's text for an error number; where a limit was reached, it also names the limit.
std::string reason_of(int error);

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.value_) { other.value_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  int get() const { return value_; }
  void reset();
  // The descriptor, which the caller closes.
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// A complete file mapped read-only; movable, not copyable.
class MappedFile {
 public:
  // Maps a regular, non-empty file.
  static MappedFile open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes);

  std::string path_;
  std::span<const std::byte> bytes_;
};

// A regular file that is read at offsets. A file that shrinks while it is read is an error here;
// with a map it would kill the process.
class InputFile {
 public:
  static InputFile open(const std::string& path);

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Fills `bytes` from byte `offset`; all of them are below size().
  void read(int64_t offset, std::span<std::byte> bytes) const;

 private:
  InputFile(std::string path, Descriptor descriptor, int64_t size);

  std::string path_;
  Descriptor descriptor_;
  int64_t size_;
};

// The folder that holds a path.
std::string folder_of(const std::string& path);

// Whether a path refers to the file that a descriptor has open.
bool names_file(const std::string& path, int descriptor);

// Whether anything exists under this path.
bool path_exists(const std::string& path);

// The text of a regular file of at most `max_bytes`; an empty file gives an empty text.
std::string read_text_file(const std::string& path, int64_t max_bytes);

// Output written to `path.partial` and renamed to `path` by commit(). Without a commit, and after
// any failure, nothing is left behind; what a killed process left is replaced. The partial file is
// locked until the rename: a second writer of the same path is an error.
class OutputFile {
 public:
  explicit OutputFile(std::string path);

  // Continues what a killed process left, of which the first `keep` bytes are valid.
  static OutputFile resume(std::string path, int64_t keep);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  // Bytes written so far.
  int64_t size() const { return size_; }

  // Forces the bytes written so far to disk.
  void sync();

  // Forces the bytes to disk and ends writing, so that only the rename is left. Files that belong
  // together are all finished before the first one is committed.
  void finish();

  // Finishes, renames the file to its final name, and forces the folder to disk.
  void commit();

 private:
  OutputFile(std::string path, int64_t keep);

  void open_locked(const std::string& partial);
  [[noreturn]] void fail(int error);
  void close_all() noexcept;
  void discard() noexcept;

  std::string path_;
  std::string partial_;  // empty once committed or discarded
  int descriptor_ = -1;  // -1 once finished
  int lock_ = -1;        // a duplicate that holds the lock until the rename
  int place_ = -1;       // slot of partial_ among the files that a signal handler removes
  int64_t size_ = 0;
};

// Removes what a killed process left of an output, unless another process is writing it.
void remove_partial(const std::string& path);

// Writes a small file, complete or not at all.
void write_text_file(const std::string& path, std::string_view text);

// Creates a folder and its parents; an existing folder is fine.
void make_directories(const std::string& path);

}  // namespace weft
