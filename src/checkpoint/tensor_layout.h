// Where tensors lie in safetensors files, known before any byte of them: so every rank can write
// its part at the final place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {

// The description of a tensor, known before its bytes.
struct TensorSpec {
  std::string name;
  std::string dtype;  // F32, BF16, F16, I32 or I64
  std::vector<int64_t> shape;
};

int64_t tensor_bytes(const TensorSpec& spec);

// The start of a file that holds these tensors in this order: the header and its length.
std::string safetensors_header(std::span<const TensorSpec> specs);

struct LaidOutFile {
  std::string name;
  std::string header;
  int64_t bytes = 0;  // including the header
};

// The first byte of a tensor, counted from the start of its file.
struct TensorPlace {
  size_t file = 0;
  int64_t offset = 0;
};

struct TensorLayout {
  std::vector<LaidOutFile> files;
  std::vector<TensorPlace> places;  // in the order of the tensors
  std::string index_name;           // of the file that maps tensors to files; empty: one file
  std::string index_text;
};

// Tensors in order, in STEM.safetensors or, if that had more than `max_file_bytes` of data, in
// STEM-00001-of-0000N.safetensors and so on with an index. A larger tensor has a file of its own.
TensorLayout lay_out(const std::string& stem, std::span<const TensorSpec> specs,
                     int64_t max_file_bytes);

}  // namespace weft
