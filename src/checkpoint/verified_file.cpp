#include "checkpoint/verified_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"

namespace weft {

VerifiedFile::VerifiedFile(InputFile file, std::vector<Place> places)
    : file_(std::move(file)), places_(std::move(places)) {}

VerifiedFile VerifiedFile::open(const std::string& path, const ManifestFile* described) {
  if (described == nullptr) return {InputFile::open(path), {}};
  if (!path_exists(path)) throw UserError(ExitCode::Integrity, path + ": the file is missing");
  InputFile file = InputFile::open(path);
  if (file.size() != described->bytes()) {
    throw UserError(ExitCode::Integrity, cat(path, ": file has ", file.size(), " bytes, expected ",
                                             described->bytes(), "; it is damaged"));
  }
  std::vector<Place> places;
  int64_t begin = 0;
  for (const Block& block : described->blocks) {
    places.push_back({begin, block});
    begin += block.bytes;
  }
  return {std::move(file), std::move(places)};
}

size_t VerifiedFile::block_at(int64_t offset) const {
  const auto after =
      std::upper_bound(places_.begin(), places_.end(), offset,
                       [](int64_t at, const Place& place) { return at < place.begin; });
  return static_cast<size_t>(after - places_.begin()) - 1;
}

void VerifiedFile::read_block(size_t index, std::span<std::byte> bytes) const {
  const Place& place = places_[index];
  try {
    file_.read(place.begin, bytes);
  } catch (const UserError& error) {
    throw UserError(ExitCode::Integrity, error.what());
  }
  const uint64_t found = checksum(bytes);
  if (found == place.block.checksum) return;
  throw UserError(ExitCode::Integrity,
                  cat(path(), ": the block at byte ", place.begin, " of ", place.block.bytes,
                      " bytes has checksum ", to_hex(found), ", expected ",
                      to_hex(place.block.checksum), "; the file is damaged"));
}

void VerifiedFile::read(int64_t offset, std::span<std::byte> bytes) const {
  if (places_.empty()) {
    file_.read(offset, bytes);
    return;
  }
  while (!bytes.empty()) {
    const size_t index = block_at(offset);
    const Place& place = places_[index];
    const auto size = static_cast<size_t>(place.block.bytes);
    const auto from = static_cast<size_t>(offset - place.begin);
    const size_t length = std::min(size - from, bytes.size());
    if (length == size) {
      read_block(index, bytes.first(size));
    } else {
      if (cached_index_ != index) {
        cached_.resize(size);
        cached_index_ = SIZE_MAX;
        read_block(index, cached_);
        cached_index_ = index;
      }
      std::memcpy(bytes.data(), cached_.data() + from, length);
    }
    bytes = bytes.subspan(length);
    offset += static_cast<int64_t>(length);
  }
}

void VerifiedFile::verify() const {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < places_.size(); ++i) {
    bytes.resize(static_cast<size_t>(places_[i].block.bytes));
    read_block(i, bytes);
  }
}

}  // namespace weft
