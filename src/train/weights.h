// Weights in Hugging Face files: a .safetensors file or a folder of one or several. Values are read
// by parameter and element, as f32, so that nobody has to hold more than it stores.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors_model.h"
#include "model/model.h"

namespace weft {

// Fills `values` with elements first, first + 1, ... of a parameter, whose named rows are tensors
// of these files; `prefix` comes before each name.
void read_elements(const SafetensorsModel& files, const ParamInfo& param, std::string_view prefix,
                   int64_t first, std::span<float> values);

class WeightFiles {
 public:
  // Checks the complete list of tensors: one that is missing, unexpected, of the wrong shape or
  // type, or different from the weight it is tied to is a UserError. Works for any tensors under
  // the names of weights, such as gradients. With the manifest of a checkpoint, all bytes are
  // verified as they are read.
  WeightFiles(const std::string& path, const ModelDef& def, std::span<const ParamInfo> params,
              const Manifest* manifest = nullptr);

  // Elements first, first + 1, ... of parameter `param`.
  void read(size_t param, int64_t first, std::span<float> values) const;
  // All elements.
  std::vector<float> read(size_t param) const;

 private:
  void claim_param(ParamInfo& param);
  const TensorEntry* find(const std::string& name) const;
  const TensorEntry* claim(const std::string& name, const Shape& shape);
  void check_alias(const ParamInfo& param, const std::string& alias);
  void check_zeros(const NamedZeros& zeros);
  void check_rest() const;
  bool is_skipped(const std::string& name) const;
  bool is_in_skipped_layer(const std::string& name) const;
  bool is_outside(const std::string& name) const;

  SafetensorsModel files_;
  const ModelDef& def_;
  std::vector<ParamInfo> params_;  // with the names that these files use
  std::set<std::string> used_;
};

}  // namespace weft
