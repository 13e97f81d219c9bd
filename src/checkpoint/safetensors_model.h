// The weights of a model in Hugging Face layout: one model.safetensors, or several files and a
// model.safetensors.index.json that maps tensors to files.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace weft {

class SafetensorsModel {
 public:
  // Opens a folder with either layout, or one .safetensors file.
  static SafetensorsModel open(const std::string& path);

  // The names of all tensors, sorted.
  std::vector<std::string> names() const;

  // The tensor of this name, or null.
  const TensorEntry* find(std::string_view name) const;

  // The bytes of a tensor, little-endian and possibly unaligned; an error when it is missing.
  std::span<const std::byte> bytes(std::string_view name) const;

  const std::string& path() const { return path_; }

 private:
  struct Place {
    size_t file;
    const TensorEntry* entry;
  };

  void open_single(const std::string& path);
  void open_sharded(const std::string& folder, const std::string& index);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace weft
