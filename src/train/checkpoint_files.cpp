#include "train/checkpoint_files.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "train/weights.h"

namespace weft {

namespace {

std::string file_dtype(DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return "BF16";
    case DType::F32:
      return "F32";
    case DType::I32:
      return "I32";
    default:
      throw InternalError(cat("no file type for ", dtype_name(dtype)));
  }
}

}  // namespace

int64_t SavedRange::stored_bytes() const {
  return from == nullptr ? 0 : elements() * dtype_bytes(from->tensor.dtype);
}

// A tensor in the files: rows of a parameter or of its moment, a state of the step, or zeros.
struct CheckpointFiles::Tensor {
  std::string name;
  DType dtype;
  Shape shape;
  const Binding* binding = nullptr;  // null: zeros
  int64_t param = -1;                // -1: not of a parameter
  int64_t first = 0;                 // its first element in the parameter
  std::string_view weight = {};
};

CheckpointFiles::CheckpointFiles(const Compiled& compiled, const ParamStore& store,
                                 const CheckpointConfig& config, int64_t rank)
    : compiled_(compiled), store_(store), first_rank_(rank == 0) {
  place(kModelStem, weights(config), config.max_file_bytes);
  if (!config.weights_only) place(kOptimizerStem, states(config), config.max_file_bytes);
  const auto starts_earlier = [](const SavedRange& a, const SavedRange& b) {
    return std::tie(a.range.file, a.range.offset) < std::tie(b.range.file, b.range.offset);
  };
  std::sort(ranges_.begin(), ranges_.end(), starts_earlier);
}

int64_t CheckpointFiles::bytes() const {
  return std::accumulate(files_.begin(), files_.end(), int64_t{0},
                         [](int64_t sum, const PlannedFile& file) { return sum + file.bytes; });
}

std::vector<CheckpointFiles::Tensor> CheckpointFiles::weights(
    const CheckpointConfig& config) const {
  std::vector<Tensor> tensors;
  const bool full = config.export_dtype == Precision::Float32;
  add_params(tensors, "", full ? DType::F32 : DType::BF16, StateRole::Other);
  return tensors;
}

std::vector<CheckpointFiles::Tensor> CheckpointFiles::states(const CheckpointConfig& config) const {
  std::vector<Tensor> tensors;
  if (config.export_dtype != Precision::Float32) {
    add_params(tensors, kMasterPrefix, DType::F32, StateRole::Other);
  }
  add_params(tensors, owner_prefix(StateRole::FirstMoment), DType::F32, StateRole::FirstMoment);
  add_params(tensors, owner_prefix(StateRole::SecondMoment), DType::F32, StateRole::SecondMoment);
  for (const StateRole role : kStepStates) {
    const Binding* binding = find_state(compiled_.plan, {role});
    if (binding == nullptr) continue;
    tensors.push_back(
        {binding->name, binding->tensor.dtype, binding->tensor.shape, binding, -1, 0});
  }
  return tensors;
}

// The named rows of every parameter; role Other stands for the parameter itself.
void CheckpointFiles::add_params(std::vector<Tensor>& tensors, std::string_view prefix, DType dtype,
                                 StateRole role) const {
  const bool is_weight = role == StateRole::Other;
  for (size_t i = 0; i < compiled_.params.size(); ++i) {
    const ParamInfo& param = compiled_.params[i];
    const Binding* binding = is_weight ? &store_.map().binding(i) : store_.state(i, role);
    if (binding == nullptr) continue;
    const DType stored = param.trained ? dtype : DType::F32;
    const int64_t row = row_elements(param);
    for (const NamedRows& rows : param.slices) {
      tensors.push_back({cat(prefix, rows.name), stored, slice_shape(param, rows), binding,
                         static_cast<int64_t>(i), rows.first * row,
                         is_weight ? std::string_view(param.name) : ""});
    }
    if (!prefix.empty()) continue;
    for (const NamedZeros& zeros : param.zeros) {
      tensors.push_back({zeros.name, dtype, zeros.shape, nullptr, -1, 0});
    }
  }
}

void CheckpointFiles::place(const std::string& stem, const std::vector<Tensor>& tensors,
                            int64_t max_file_bytes) {
  std::vector<TensorSpec> specs;
  for (const Tensor& tensor : tensors) {
    specs.push_back({tensor.name, file_dtype(tensor.dtype), tensor.shape});
  }
  TensorLayout layout = lay_out(stem, specs, max_file_bytes);
  const size_t first_file = files_.size();
  for (LaidOutFile& file : layout.files) {
    const auto length = static_cast<int64_t>(file.header.size());
    if (first_rank_) {
      const std::string& header = headers_.emplace_back(std::move(file.header));
      ranges_.push_back({.range = {files_.size(), 0, length}, .text = header});
    }
    files_.push_back({file.name, file.bytes});
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    add_ranges(tensors[i], first_file + layout.places[i].file, layout.places[i].offset);
  }
  if (!layout.index_name.empty()) indexes_.push_back({layout.index_name, layout.index_text});
}

void CheckpointFiles::add_ranges(const Tensor& tensor, size_t file, int64_t offset) {
  const int64_t size = dtype_bytes(tensor.dtype), elements = count(tensor.shape);
  const auto add = [&](int64_t from, int64_t length, int64_t at) {
    if (length == 0) return;
    ranges_.push_back({.range = {file, offset + from * size, length * size},
                       .from = tensor.binding,
                       .at = at,
                       .dtype = tensor.dtype,
                       .weight = tensor.weight});
  };
  if (tensor.param < 0) {
    if (first_rank_) add(0, elements, 0);
    return;
  }
  for (const ElementRun& run : store_.map().written(static_cast<size_t>(tensor.param))) {
    const int64_t begin = std::max(run.first, tensor.first);
    const int64_t end = std::min(run.first + run.elements, tensor.first + elements);
    if (begin < end) add(begin - tensor.first, end - begin, run.at + begin - run.first);
  }
}

}  // namespace weft
