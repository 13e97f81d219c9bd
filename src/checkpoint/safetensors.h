// Reads a safetensors file: eight bytes of header length, a JSON header, then the tensors back to
// back. Everything in the header is checked before it is used: sizes against the file, shapes
// against sizes, and that the tensors tile the data without gaps or overlaps. Tensors are read in
// parts, so that nobody has to hold a large one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/verified_file.h"

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

// Elements as text: "[2,3]", shortened if there are many dims.
std::string shape_text(const std::vector<int64_t>& shape);

// The length of the header, from the first eight bytes of a file of `file_bytes` bytes; `where`
// starts every error message.
int64_t safetensors_header_length(std::span<const std::byte> start, int64_t file_bytes,
                                  std::string_view where);
// Reads and checks the JSON text of the header.
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t file_bytes,
                                           std::string_view where);

// An open safetensors file.
class SafetensorsFile {
 public:
  // With a description of the file, its bytes are verified as they are read.
  static SafetensorsFile open(const std::string& path, const ManifestFile* described = nullptr);

  // All tensors in data order.
  const std::vector<TensorEntry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const std::string& path() const { return file_.path(); }

  // The tensor of this name, or null.
  const TensorEntry* find(std::string_view name) const;

  // Fills `bytes` from byte `first` of a tensor; elements are little-endian.
  void read(const TensorEntry& entry, int64_t first, std::span<std::byte> bytes) const;
  // All bytes of a tensor.
  std::vector<std::byte> bytes(const TensorEntry& entry) const;
  std::vector<std::byte> bytes(std::string_view name) const;

 private:
  SafetensorsFile(VerifiedFile file, SafetensorsHeader header);

  VerifiedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace weft
