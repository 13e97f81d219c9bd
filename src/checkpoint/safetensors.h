// Reads a safetensors file through a memory map: eight bytes of header length, a JSON header, then
// the tensors back to back. Everything in the header is checked before it is used: sizes against
// the file, shapes against sizes, and that the tensors tile the data without gaps or overlaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace weft {

inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

// One tensor of a file. Offsets are relative to the data, which follows the header.
struct TensorEntry {
  std::string name;
  std::string dtype;  // as in the file: "F32", "BF16", ...
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // in data order
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // offset of the data in the file
};

// The bits per element of a safetensors dtype; 0 for an unknown dtype.
int safetensors_dtype_bits(std::string_view dtype);

// Reads and checks the header of a complete file in memory; `where` starts every error message.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view where);

// An open safetensors file.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);

  // All tensors in data order.
  const std::vector<TensorEntry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const std::string& path() const { return file_.path(); }

  // The tensor of this name, or null.
  const TensorEntry* find(std::string_view name) const;

  // The bytes of a tensor, little-endian and possibly unaligned; valid while the file is open.
  std::span<const std::byte> bytes(const TensorEntry& entry) const;
  std::span<const std::byte> bytes(std::string_view name) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header);

  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace weft
