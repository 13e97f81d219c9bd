// Weights in Hugging Face files: read from a .safetensors file or a folder of one or several,
// written as model.safetensors with its config.json. Parameters pass through callbacks one at a
// time, as f32, so that the caller decides where they live and no more than one is held here.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "config/config.h"
#include "data/tokenizer.h"
#include "model/model.h"

namespace weft {

// Takes or gives all elements of parameter `index`, row-major.
using PutParam = std::function<void(size_t index, std::span<const float> values)>;
using GetParam = std::function<void(size_t index, std::span<float> values)>;

// Reads every parameter of a model. The whole list of tensors is checked before the first is handed
// on: missing, left over, of the wrong shape or type, or different from the weight it is tied to is
// a UserError. Works for any set of tensors under the names of the weights, gradients included.
void load_weights(const std::string& path, const ModelDef& def, std::span<const ParamInfo> params,
                  const PutParam& put);

// The checks of load_weights alone, for use before memory is allocated.
void check_weights(const std::string& path, const ModelDef& def, std::span<const ParamInfo> params);

struct SaveOptions {
  Precision dtype = Precision::Float32;
  std::optional<Tokenizer> tokenizer = {};  // its files are written too
};

// Writes model.safetensors and config.json into a folder, which is made; tensors are in the order
// of the parameters. Files appear once all of them are complete.
void save_weights(const std::string& folder, const ModelSpec& spec,
                  std::span<const ParamInfo> params, const GetParam& get,
                  const SaveOptions& options = {});

}  // namespace weft
