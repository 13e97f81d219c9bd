// Writes a safetensors file as a stream: all names, dtypes and shapes first, then the bytes of the
// tensors in that order, in chunks of any size. The file appears, complete, when committed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace weft {

// The description of a tensor, known before its bytes.
struct TensorSpec {
  std::string name;
  std::string dtype;  // F32, BF16, F16, I32 or I64
  std::vector<int64_t> shape;
};

class SafetensorsWriter {
 public:
  // Writes the header; adds {"format": "pt"} to the metadata unless it names a format.
  SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& specs,
                    std::map<std::string, std::string> metadata = {});

  // Appends the next bytes of the data.
  void append(std::span<const std::byte> bytes);

  // Completes the file; every byte of every tensor must have been appended.
  void commit();

 private:
  OutputFile file_;
  int64_t missing_ = 0;  // bytes not yet appended
};

}  // namespace weft
