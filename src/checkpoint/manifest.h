// The manifest of a checkpoint: every other file with its size and the checksums of its blocks. It
// is written last, so a checkpoint without one is incomplete. Its text ends with its own digest,
// which is the checkpoint's identity.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int64_t kManifestFormat = 1;
inline constexpr int64_t kMaxBlockBytes = 4 << 20;
inline constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;

// Consecutive bytes of a file, written by one rank.
struct Block {
  int64_t bytes = 0;
  uint64_t checksum = 0;
  bool operator==(const Block&) const = default;
};

struct ManifestFile {
  std::string name;
  std::vector<Block> blocks;  // cover the file in order
  int64_t bytes() const;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  int64_t step = 0;  // optimizer steps done
  std::vector<ManifestFile> files;

  // The file of that name, or null.
  const ManifestFile* find(std::string_view name) const;
  int64_t bytes() const;
  bool operator==(const Manifest&) const = default;
};

std::string manifest_text(const Manifest& manifest);

// Reads a manifest and checks everything it says about itself. Throws UserError(Integrity) for one
// that is damaged, UserError(InputFile) for one of a newer format or without a field; `where`
// starts the message.
Manifest parse_manifest(std::string_view text, const std::string& where);

// The digest at the end of a manifest's text, which parse_manifest has checked.
std::string manifest_digest(std::string_view text);

// Whether the name is a plain file name, which cannot refer to another folder.
bool is_plain_name(std::string_view name);

}  // namespace weft
