// Safetensors files for tests.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "checkpoint/tensor_layout.h"

namespace weft {

// Writes a file with these tensors, whose bytes are `data` in order.
inline void write_safetensors(const std::string& path, std::span<const TensorSpec> specs,
                              std::string_view data) {
  write_text_file(path, safetensors_header(specs).append(data));
}

}  // namespace weft
