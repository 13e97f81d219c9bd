// The header is written by hand so that tensors appear in data order.
#include "checkpoint/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace weft {

namespace {

using nlohmann::json;

int64_t spec_bytes(const TensorSpec& spec) {
  const std::string& dtype = spec.dtype;
  CHECK(dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "I32" || dtype == "I64",
        "cannot write dtype ", dtype);
  int64_t bytes = safetensors_dtype_bits(dtype) / 8;
  for (const int64_t size : spec.shape) {
    CHECK(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes), "size of ", spec.name);
  }
  return bytes;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& specs,
                                     std::map<std::string, std::string> metadata)
    : file_(path) {
  metadata.try_emplace("format", "pt");
  std::string header = "{\"__metadata__\":" + json(metadata).dump();
  std::set<std::string> names;
  for (const TensorSpec& spec : specs) {
    CHECK(spec.name != "__metadata__" && names.insert(spec.name).second, "name ", spec.name);
    const int64_t begin = missing_;
    missing_ += spec_bytes(spec);
    header += cat(",", json(spec.name).dump(), ":{\"dtype\":\"", spec.dtype,
                  "\",\"shape\":", json(spec.shape).dump(), ",\"data_offsets\":[", begin, ",",
                  missing_, "]}");
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  CHECK(static_cast<int64_t>(header.size()) <= kMaxSafetensorsHeader, "header too long");
  std::byte length[8];
  for (int i = 0; i < 8; ++i)
    length[i] = static_cast<std::byte>(uint64_t{header.size()} >> (8 * i));
  file_.write(length);
  file_.write(header);
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  CHECK(static_cast<int64_t>(bytes.size()) <= missing_, bytes.size(), " bytes appended, ", missing_,
        " expected");
  file_.write(bytes);
  missing_ -= static_cast<int64_t>(bytes.size());
}

void SafetensorsWriter::commit() {
  CHECK(missing_ == 0, missing_, " bytes were not appended");
  file_.commit();
}

}  // namespace weft
