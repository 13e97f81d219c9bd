// Tensors in Hugging Face layout: one STEM.safetensors, or several files and a
// STEM.safetensors.index.json that maps tensors to files. The stem of a model's weights is "model".
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace weft {

class SafetensorsModel {
 public:
  // Opens a folder with either layout, or one .safetensors file. With the manifest of a checkpoint,
  // all bytes are verified as they are read.
  static SafetensorsModel open(const std::string& path, const std::string& stem = "model",
                               const Manifest* manifest = nullptr);

  // The names of all tensors, sorted.
  std::vector<std::string> names() const;

  // The tensor of this name, or null.
  const TensorEntry* find(std::string_view name) const;

  // Fills `bytes` from byte `first` of a tensor, little-endian; an error when it is missing.
  void read(std::string_view name, int64_t first, std::span<std::byte> bytes) const;

  const std::string& path() const { return path_; }

 private:
  struct Place {
    size_t file;
    const TensorEntry* entry;
  };

  void open_single(const std::string& path, const Manifest* manifest);
  void open_sharded(const std::string& folder, const std::string& index, const Manifest* manifest);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace weft
