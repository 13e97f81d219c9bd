// Header checks, ordered so that each one makes the next one safe.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace weft {

namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;

uint64_t read_u64(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = (value << 8) | static_cast<uint64_t>(bytes[i]);
  return value;
}

std::vector<int64_t> read_sizes(const json& object, const std::string& key,
                                std::string_view where) {
  const json& list = json_member(object, key, where);
  INPUT_CHECK(list.is_array(), where, ": \"", key, "\" is ", json_type(list),
              ", expected an array of whole numbers");
  std::vector<int64_t> sizes;
  sizes.reserve(list.size());
  for (const json& item : list) {
    const bool good = item.is_number_unsigned() && item.get<uint64_t>() <= uint64_t{INT64_MAX};
    INPUT_CHECK(good, where, ": \"", key, "\" holds ",
                item.is_number() ? item.dump() : json_type(item),
                ", expected whole numbers of 0 or more");
    sizes.push_back(item.get<int64_t>());
  }
  return sizes;
}

// Bytes of a tensor; nullopt when the number overflows or is not an integer.
std::optional<int64_t> tensor_bytes(const std::vector<int64_t>& shape, int bits) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  if (__builtin_mul_overflow(count, int64_t{bits}, &count) || count % 8 != 0) return std::nullopt;
  return count / 8;
}

TensorEntry read_entry(const std::string& name, const json& value, int64_t data_size,
                       std::string_view file) {
  const std::string where = cat(file, ": tensor ", in_quotes(name));
  TensorEntry entry;
  entry.name = name;
  entry.dtype = json_string(value, "dtype", where);
  const int bits = safetensors_dtype_bits(entry.dtype);
  INPUT_CHECK(bits > 0, where, ": unknown dtype ", in_quotes(entry.dtype));
  entry.shape = read_sizes(value, "shape", where);
  const std::vector<int64_t> offsets = read_sizes(value, "data_offsets", where);
  INPUT_CHECK(offsets.size() == 2, where, ": \"data_offsets\" has ", offsets.size(),
              " numbers, expected 2");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  INPUT_CHECK(entry.begin <= entry.end, where, ": \"data_offsets\" run backwards, from ",
              entry.begin, " to ", entry.end);
  INPUT_CHECK(entry.end <= data_size, where, ": ends at byte ", entry.end,
              " of the data, which has ", data_size, "; the file is truncated");
  const std::optional<int64_t> expected = tensor_bytes(entry.shape, bits);
  INPUT_CHECK(expected, where, ": ", entry.dtype, shape_text(entry.shape),
              " is not a whole number of bytes below 2^60");
  INPUT_CHECK(*expected == entry.end - entry.begin, where, ": ", entry.dtype,
              shape_text(entry.shape), " needs ", *expected, " bytes, \"data_offsets\" give ",
              entry.end - entry.begin);
  return entry;
}

std::map<std::string, std::string> read_metadata(const json& value, std::string_view file) {
  const std::string where = cat(file, ": \"__metadata__\"");
  INPUT_CHECK(value.is_object(), where, " is ", json_type(value), ", expected an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, item] : value.items()) {
    INPUT_CHECK(item.is_string(), where, ": ", in_quotes(key), " is ", json_type(item),
                ", expected a string");
    metadata[key] = item.get<std::string>();
  }
  return metadata;
}

// Sorts by offset and checks that the tensors tile the data.
void check_tiling(std::vector<TensorEntry>& entries, int64_t data_size, std::string_view where) {
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t reached = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const TensorEntry& entry = entries[i];
    INPUT_CHECK(entry.begin >= reached, where, ": tensors ", in_quotes(entries[i ? i - 1 : 0].name),
                " and ", in_quotes(entry.name), " overlap");
    INPUT_CHECK(entry.begin == reached, where, ": bytes ", reached, " to ", entry.begin,
                " of the data belong to no tensor");
    reached = entry.end;
  }
  INPUT_CHECK(reached == data_size, where, ": bytes ", reached, " to ", data_size,
              " of the data belong to no tensor");
}

}  // namespace

int safetensors_dtype_bits(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int> kBits[] = {
      {"F64", 64},    {"I64", 64},    {"U64", 64},        {"C64", 64},        {"F32", 32},
      {"I32", 32},    {"U32", 32},    {"F16", 16},        {"BF16", 16},       {"I16", 16},
      {"U16", 16},    {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8},
      {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
      {"F6_E3M2", 6}, {"F4", 4}};
  for (const auto& [name, bits] : kBits) {
    if (name == dtype) return bits;
  }
  return 0;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  constexpr size_t kMax = 8;
  std::string text = "[";
  for (size_t i = 0; i < std::min(shape.size(), kMax); ++i) text += cat(i ? "," : "", shape[i]);
  return text + (shape.size() > kMax ? ",...]" : "]");
}

int64_t safetensors_header_length(std::span<const std::byte> start, int64_t file_bytes,
                                  std::string_view where) {
  INPUT_CHECK(file_bytes >= kLengthBytes, where, ": file has ", file_bytes,
              " bytes, too short for a safetensors file");
  const uint64_t length = read_u64(start);
  const int64_t rest = file_bytes - kLengthBytes;
  INPUT_CHECK(length <= uint64_t{kMaxSafetensorsHeader}, where, ": header claims ", length,
              " bytes, expected at most ", kMaxSafetensorsHeader,
              "; this is not a safetensors file");
  INPUT_CHECK(static_cast<int64_t>(length) <= rest, where, ": header claims ", length,
              " bytes, only ", rest, " follow; the file is truncated or not a safetensors file");
  return static_cast<int64_t>(length);
}

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t file_bytes,
                                           std::string_view where) {
  INPUT_CHECK(text.starts_with('{'), where,
              ": header does not start with '{'; this is not a safetensors file");
  const json root = parse_json(text, cat(where, ": header"));
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + static_cast<int64_t>(text.size());
  const int64_t data_size = file_bytes - header.data_begin;
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") {
      header.metadata = read_metadata(value, where);
    } else {
      header.entries.push_back(read_entry(name, value, data_size, where));
    }
  }
  check_tiling(header.entries, data_size, where);
  return header;
}

SafetensorsFile SafetensorsFile::open(const std::string& path, const ManifestFile* described) {
  VerifiedFile file = VerifiedFile::open(path, described);
  std::byte start[kLengthBytes] = {};
  if (file.size() >= kLengthBytes) file.read(0, start);
  const int64_t length = safetensors_header_length(start, file.size(), path);
  std::string text(static_cast<size_t>(length), ' ');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  SafetensorsHeader header = parse_safetensors_header(text, file.size(), path);
  return SafetensorsFile(std::move(file), std::move(header));
}

SafetensorsFile::SafetensorsFile(VerifiedFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (size_t i = 0; i < header_.entries.size(); ++i) by_name_[header_.entries[i].name] = i;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.entries[found->second];
}

void SafetensorsFile::read(const TensorEntry& entry, int64_t first,
                           std::span<std::byte> bytes) const {
  CHECK(first >= 0 && first + std::ssize(bytes) <= entry.end - entry.begin, entry.name);
  file_.read(header_.data_begin + entry.begin + first, bytes);
}

std::vector<std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const {
  std::vector<std::byte> bytes(static_cast<size_t>(entry.end - entry.begin));
  read(entry, 0, bytes);
  return bytes;
}

std::vector<std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const TensorEntry* entry = find(name);
  INPUT_CHECK(entry != nullptr, path(), ": tensor ", in_quotes(name), " is missing");
  return bytes(*entry);
}

}  // namespace weft
