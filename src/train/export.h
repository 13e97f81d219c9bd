// Writes the weights of a checkpoint or of a Hugging Face folder as a Hugging Face folder.
#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"

namespace weft {

struct ExportOptions {
  Precision dtype = Precision::Float32;
  int64_t max_file_bytes = CheckpointConfig().max_file_bytes;
};

struct Exported {
  std::string from;  // the folder that was read
  int64_t bytes = 0;
};

// `from` is read as find_weights says; the tokenizer comes along. `to` appears complete or not
// at all and must not exist. Holds a few megabytes of the weights at a time.
Exported export_weights(const std::string& from, const std::string& to,
                        const ExportOptions& options);

}  // namespace weft
