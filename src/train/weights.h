// Weights in Hugging Face files: read from a .safetensors file or a folder of one or several,
// written as model.safetensors with its config.json. Parameters pass through callbacks one at a
// time, as f32: the caller decides where they live, and only one is held in memory.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "config/config.h"
#include "data/tokenizer.h"
#include "model/model.h"

namespace weft {

// Receives or provides all elements of parameter `index`, row-major.
using PutParam = std::function<void(size_t index, std::span<const float> values)>;
using GetParam = std::function<void(size_t index, std::span<float> values)>;

// Reads every parameter of a model. The complete list of tensors is checked before the first one is
// passed on: a tensor that is missing, unexpected, of the wrong shape or type, or different from
// the weight it is tied to is a UserError. Works for any tensors under the names of weights, such
// as gradients.
void load_weights(const std::string& path, const ModelDef& def, std::span<const ParamInfo> params,
                  const PutParam& put);

// Only the checks of load_weights, to run before memory is allocated.
void check_weights(const std::string& path, const ModelDef& def, std::span<const ParamInfo> params);

struct SaveOptions {
  Precision dtype = Precision::Float32;
  std::optional<Tokenizer> tokenizer = {};  // its files are written too
};

// Writes model.safetensors and config.json into a folder, which is created; tensors are in
// parameter order. Files appear once all of them are complete.
void save_weights(const std::string& folder, const ModelSpec& spec,
                  std::span<const ParamInfo> params, const GetParam& get,
                  const SaveOptions& options = {});

}  // namespace weft
