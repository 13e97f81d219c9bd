// Durable changes to folders, and files of a known size that several processes write at offsets.
// Every failure is a UserError(CannotWrite) with the path and the system's reason. A failed fsync
// is never retried: the kernel may have dropped what it could not write.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace weft {

// An existing file of a fixed size, open for writing at offsets.
class BlockFile {
 public:
  // Full pages at multiples of this are written past the page cache, which a checkpoint would only
  // crowd: both the offset in the file and the address in memory must be such multiples.
  static constexpr int64_t kPage = 4096;

  // Creates the file and reserves its bytes on disk, so that a full disk is found now. An existing
  // file is an error.
  static BlockFile create(const std::string& path, int64_t bytes);
  static BlockFile open(const std::string& path);

  void write(int64_t offset, std::span<const std::byte> bytes);
  // Closes the file; its bytes may not be on disk yet.
  void close();
  // Forces the bytes to disk and closes the file.
  void finish();

 private:
  BlockFile(std::string path, Descriptor descriptor);
  // Lets the next writes go past the page cache, or not; returns whether the file allows it.
  bool set_direct(bool direct);
  [[noreturn]] void fail(int error) const;

  std::string path_;
  Descriptor descriptor_;
  bool is_direct_ = false;
  bool can_be_direct_ = true;
};

// Creates a folder whose parent exists; an existing folder is an error.
void make_folder(const std::string& path);
// Forces the entries of a folder to disk.
void sync_folder(const std::string& path);
// Renames a folder and forces the change to disk. A folder with contents under the new name is an
// error.
void rename_durably(const std::string& from, const std::string& to);
// Removes a folder and everything in it.
void remove_folder(const std::string& path);

// The names in a folder, sorted; empty if there is no such folder.
std::vector<std::string> folder_names(const std::string& path);
// A number for names that must differ between attempts, even after a crash. Results never depend on
// it.
uint64_t random_tag();
// Bytes that can still be written to the file system of an existing path.
int64_t free_disk_bytes(const std::string& path);

// The right to write into a folder, for one process at a time. It ends with the process, however
// that ends.
class FolderLock {
 public:
  // Creates the folder if necessary and locks `folder/.lock`. A holder that has not ended after
  // `patience` is an error that names it: a killed process may take a moment to end. `advice`
  // ends its message.
  explicit FolderLock(const std::string& folder, std::chrono::milliseconds patience = {},
                      std::string_view advice = "wait for it to end");
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  // Removes the lock, and the folder if nothing was written to it.
  ~FolderLock();

 private:
  std::string folder_;
  std::string path_;
  Descriptor descriptor_;
};

}  // namespace weft
