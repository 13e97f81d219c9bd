// Headers are written by hand so that tensors appear in data order.
#include "checkpoint/tensor_layout.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace weft {

namespace {

using nlohmann::json;

// Ranges [first, end) of tensors, one per file.
std::vector<std::pair<size_t, size_t>> split_files(std::span<const TensorSpec> specs,
                                                   int64_t max_file_bytes) {
  std::vector<std::pair<size_t, size_t>> files;
  size_t first = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const int64_t own = tensor_bytes(specs[i]);
    if (i > first && bytes + own > max_file_bytes) {
      files.emplace_back(first, i);
      first = i;
      bytes = 0;
    }
    bytes += own;
  }
  files.emplace_back(first, specs.size());
  return files;
}

std::string file_name(const std::string& stem, size_t file, size_t files) {
  if (files == 1) return stem + ".safetensors";
  char number[64];
  std::snprintf(number, sizeof number, "-%05zu-of-%05zu.safetensors", file + 1, files);
  return stem + number;
}

std::string index_text(const TensorLayout& layout, std::span<const TensorSpec> specs) {
  int64_t total = 0;
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (size_t i = 0; i < specs.size(); ++i) {
    total += tensor_bytes(specs[i]);
    map[specs[i].name] = layout.files[layout.places[i].file].name;
  }
  return nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(
             2) +
         "\n";
}

}  // namespace

int64_t tensor_bytes(const TensorSpec& spec) {
  const std::string& dtype = spec.dtype;
  CHECK(dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "I32" || dtype == "I64",
        "cannot write dtype ", dtype);
  int64_t bytes = safetensors_dtype_bits(dtype) / 8;
  for (const int64_t size : spec.shape) {
    CHECK(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes), "size of ", spec.name);
  }
  return bytes;
}

std::string safetensors_header(std::span<const TensorSpec> specs) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::set<std::string> names;
  int64_t at = 0;
  for (const TensorSpec& spec : specs) {
    CHECK(spec.name != "__metadata__" && names.insert(spec.name).second, "name ", spec.name);
    const int64_t begin = at;
    at += tensor_bytes(spec);
    text +=
        cat(",", json(spec.name).dump(), ":{\"dtype\":\"", spec.dtype,
            "\",\"shape\":", json(spec.shape).dump(), ",\"data_offsets\":[", begin, ",", at, "]}");
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  CHECK(static_cast<int64_t>(text.size()) <= kMaxSafetensorsHeader, "header too long");
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(uint64_t{text.size()} >> (8 * i));
  return length + text;
}

TensorLayout lay_out(const std::string& stem, std::span<const TensorSpec> specs,
                     int64_t max_file_bytes) {
  const auto parts = split_files(specs, max_file_bytes);
  TensorLayout layout;
  for (const auto& [first, end] : parts) {
    const size_t file = layout.files.size();
    std::string header = safetensors_header(specs.subspan(first, end - first));
    auto at = static_cast<int64_t>(header.size());
    for (size_t i = first; i < end; ++i) {
      layout.places.push_back({file, at});
      at += tensor_bytes(specs[i]);
    }
    layout.files.push_back({file_name(stem, file, parts.size()), std::move(header), at});
  }
  if (parts.size() > 1) {
    layout.index_name = stem + ".safetensors.index.json";
    layout.index_text = index_text(layout, specs);
  }
  return layout;
}

}  // namespace weft
