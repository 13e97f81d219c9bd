#include "checkpoint/block_writer.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <tuple>

#include "base/checksum.h"
#include "base/disk.h"
#include "base/error.h"

namespace weft {

namespace {

// Collects consecutive bytes of one file and writes them in blocks, which end at multiples of
// kMaxBlockBytes. In the buffer a block has the alignment that it has in the file.
class FileWriter {
 public:
  FileWriter(const std::string& folder, std::span<const PlannedFile> files)
      : folder_(folder), files_(files), buffer_(allocate(kMaxBlockBytes)) {}

  // Room for bytes that follow at this place, at most `most`.
  std::span<std::byte> room(size_t file, int64_t offset, int64_t most) {
    if (file != file_ || offset != offset_ + used_) {
      flush();
      if (file != file_) open(file);
      offset_ = offset;
    }
    if (used_ > 0 && offset % kMaxBlockBytes == 0) {
      flush();
      offset_ = offset;
    }
    const int64_t length = std::min(kMaxBlockBytes - offset % kMaxBlockBytes, most);
    const std::span room(block() + used_, static_cast<size_t>(length));
    used_ += length;
    return room;
  }

  std::vector<WrittenBlock> finish() {
    close();
    return std::move(blocks_);
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Buffer = std::unique_ptr<std::byte, Free>;

  static Buffer allocate(int64_t bytes) {
    void* memory = std::aligned_alloc(BlockFile::kPage, static_cast<size_t>(bytes));
    if (memory == nullptr) throw std::bad_alloc();
    return Buffer(static_cast<std::byte*>(memory));
  }

  // Where the bytes from offset_ on lie in memory.
  std::byte* block() const { return buffer_.get() + offset_ % BlockFile::kPage; }

  void open(size_t file) {
    close();
    file_ = file;
    target_ = BlockFile::open(folder_ + "/" + files_[file].name);
  }

  void close() {
    flush();
    if (target_) target_->finish();
    target_.reset();
  }

  void flush() {
    if (used_ == 0) return;
    const std::span<const std::byte> bytes(block(), static_cast<size_t>(used_));
    blocks_.push_back({static_cast<int64_t>(file_), offset_, used_, checksum(bytes)});
    target_->write(offset_, bytes);
    used_ = 0;
  }

  const std::string& folder_;
  std::span<const PlannedFile> files_;
  Buffer buffer_;
  size_t file_ = SIZE_MAX;
  int64_t offset_ = 0;  // of the buffer in the file
  int64_t used_ = 0;
  std::optional<BlockFile> target_;
  std::vector<WrittenBlock> blocks_;
};

}  // namespace

void reserve_files(const std::string& folder, std::span<const PlannedFile> files) {
  for (const PlannedFile& file : files) {
    BlockFile::create(folder + "/" + file.name, file.bytes).close();
  }
}

std::vector<WrittenBlock> write_ranges(const std::string& folder,
                                       std::span<const PlannedFile> files,
                                       std::span<const FileRange> ranges, const FillRange& fill) {
  FileWriter writer(folder, files);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const FileRange& range = ranges[i];
    for (int64_t at = 0; at < range.bytes;) {
      const std::span<std::byte> room =
          writer.room(range.file, range.offset + at, range.bytes - at);
      fill(i, at, room);
      at += std::ssize(room);
    }
  }
  return writer.finish();
}

Manifest make_manifest(int64_t step, std::span<const PlannedFile> files,
                       std::vector<WrittenBlock> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const WrittenBlock& a, const WrittenBlock& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  Manifest manifest{.step = step, .files = {}};
  size_t next = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    ManifestFile file{files[i].name, {}};
    int64_t reached = 0;
    for (; next < blocks.size() && blocks[next].file == static_cast<int64_t>(i); ++next) {
      const WrittenBlock& block = blocks[next];
      CHECK(block.offset == reached, files[i].name, ": a block at ", block.offset, " after ",
            reached, " bytes");
      file.blocks.push_back({block.bytes, block.checksum});
      reached += block.bytes;
    }
    CHECK(reached == files[i].bytes, files[i].name, ": ", reached, " of ", files[i].bytes,
          " bytes were written");
    manifest.files.push_back(std::move(file));
  }
  CHECK(next == blocks.size(), "a block of no file");
  return manifest;
}

}  // namespace weft
