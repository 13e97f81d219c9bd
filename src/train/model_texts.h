// The text files of a model that Hugging Face reads with its weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/tokenizer.h"
#include "model/model.h"

namespace weft {

// A text that is a file of its own.
struct TextFile {
  std::string name;
  std::string text;
};

// config.json for weights of this type.
TextFile model_config_text(const ModelSpec& spec, Precision dtype);

// config.json and, if the tokenizer is known, its files. The tokenizer determines the ids that
// begin and end a text, unless the model has set them.
std::vector<TextFile> model_texts(ModelSpec spec, const std::optional<Tokenizer>& tokenizer,
                                  Precision dtype);

}  // namespace weft
