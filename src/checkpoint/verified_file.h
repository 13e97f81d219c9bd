// A file that is read at offsets. If its blocks are known, each one is compared with its checksum
// before any of its bytes are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/manifest.h"

namespace weft {

class VerifiedFile {
 public:
  // Without a description nothing is compared. With one, a file of another size is a
  // UserError(Integrity).
  static VerifiedFile open(const std::string& path, const ManifestFile* described = nullptr);

  int64_t size() const { return file_.size(); }
  const std::string& path() const { return file_.path(); }

  // Fills `bytes` from byte `offset`; all of them are below size(). A damaged block is a
  // UserError(Integrity) with its offset and both checksums. Keeps the block that was read last, so
  // reading a file in small parts in order reads each block once. For one thread at a time.
  void read(int64_t offset, std::span<std::byte> bytes) const;

  // Compares every block.
  void verify() const;

 private:
  struct Place {
    int64_t begin = 0;
    Block block;
  };

  VerifiedFile(InputFile file, std::vector<Place> places);
  // Reads block `index` into `bytes` and compares it.
  void read_block(size_t index, std::span<std::byte> bytes) const;
  size_t block_at(int64_t offset) const;

  InputFile file_;
  std::vector<Place> places_;  // empty: nothing is compared
  mutable std::vector<std::byte> cached_;
  mutable size_t cached_index_ = SIZE_MAX;
};

}  // namespace weft
