// Writes byte ranges of preallocated files, block by block, with a checksum of each block computed
// from memory. Ranks write their ranges independently; the manifest lists the blocks of all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace weft {

// A file that will hold this many bytes.
struct PlannedFile {
  std::string name;
  int64_t bytes = 0;
};

// Bytes of the file with that index.
struct FileRange {
  size_t file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Provides the bytes of range `range` from its byte `first` on.
using FillRange = std::function<void(size_t range, int64_t first, std::span<std::byte> bytes)>;

// A block as its writer reports it; plain bytes, so that ranks can exchange it.
struct WrittenBlock {
  int64_t file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  uint64_t checksum = 0;
};

// Creates the files with their final sizes. Throws UserError(CannotWrite).
void reserve_files(const std::string& folder, std::span<const PlannedFile> files);

// Writes the ranges, which are sorted by file and offset and do not overlap, into reserved files
// and forces them to disk. Neighbouring ranges share blocks. Throws UserError(CannotWrite), and
// whatever `fill` throws.
std::vector<WrittenBlock> write_ranges(const std::string& folder,
                                       std::span<const PlannedFile> files,
                                       std::span<const FileRange> ranges, const FillRange& fill);

// The manifest of these files; the blocks of all ranks must cover every byte exactly once.
Manifest make_manifest(int64_t step, std::span<const PlannedFile> files,
                       std::vector<WrittenBlock> blocks);

}  // namespace weft
