#include "train/export.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/checksum.h"
#include "base/disk.h"
#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/tensor_layout.h"
#include "model/hf_config.h"
#include "train/checkpoint_files.h"
#include "train/load_weights.h"
#include "train/model_texts.h"
#include "train/training_state.h"
#include "train/weights.h"

namespace weft {

namespace {

constexpr int64_t kMaxTextBytes = 256 << 20;

// A tensor of the exported files: named rows of a parameter, or zeros.
struct ExportedTensor {
  TensorSpec spec;
  size_t param = 0;
  int64_t first = 0;  // element of the parameter
  bool zeros = false;
};

std::vector<ExportedTensor> exported_tensors(std::span<const ParamInfo> params,
                                             const std::string& dtype) {
  std::vector<ExportedTensor> tensors;
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamInfo& param = params[i];
    const int64_t row = row_elements(param);
    for (const NamedRows& rows : param.slices) {
      tensors.push_back({{rows.name, param.trained ? dtype : "F32", slice_shape(param, rows)},
                         i,
                         rows.first * row,
                         false});
    }
    for (const NamedZeros& zeros : param.zeros) {
      tensors.push_back({{zeros.name, dtype, zeros.shape}, i, 0, true});
    }
  }
  return tensors;
}

// Values of parameters at full precision: a checkpoint whose weights are exported in bfloat16 keeps
// the float32 ones apart.
class Source {
 public:
  Source(const std::string& folder, const ModelSpec& spec, std::vector<ParamInfo> params)
      : params_(std::move(params)),
        manifest_(read_manifest(folder)),
        weights_(folder, find_model(spec.model), params_, manifest_ ? &*manifest_ : nullptr) {
    if (!manifest_) return;
    check_files(folder, *manifest_);
    const bool has_states =
        std::any_of(manifest_->files.begin(), manifest_->files.end(),
                    [](const ManifestFile& file) { return file.name.starts_with(kOptimizerStem); });
    if (!has_states) return;
    SafetensorsModel states = SafetensorsModel::open(folder, kOptimizerStem, &*manifest_);
    const std::string& name = params_.front().slices.front().name;
    if (states.find(cat(kMasterPrefix, name)) != nullptr) masters_ = std::move(states);
  }

  void read(size_t param, int64_t first, std::span<float> values) const {
    if (masters_) {
      read_elements(*masters_, params_[param], kMasterPrefix, first, values);
    } else {
      weights_.read(param, first, values);
    }
  }

 private:
  std::vector<ParamInfo> params_;
  std::optional<Manifest> manifest_;
  WeightFiles weights_;
  std::optional<SafetensorsModel> masters_;
};

// Files of the source that are neither weights nor Weft's own, such as those of the tokenizer.
std::vector<TextFile> other_texts(const std::string& folder) {
  std::vector<TextFile> texts;
  for (const std::string& name : folder_names(folder)) {
    const std::string path = folder + "/" + name;
    const bool own = name == kManifestName || name == kTrainingStateName || name == kConfigName ||
                     name == "config.json" || name.find(".safetensors") != std::string::npos;
    if (own || !std::filesystem::is_regular_file(path)) continue;
    texts.push_back({name, read_text_file(path, kMaxTextBytes)});
  }
  return texts;
}

void fill(const Source& source, const ExportedTensor& tensor, int64_t first,
          std::span<std::byte> bytes) {
  if (tensor.zeros) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    return;
  }
  const bool full = tensor.spec.dtype == "F32";
  const int64_t size = full ? 4 : 2;
  std::vector<float> values(bytes.size() / static_cast<size_t>(size));
  source.read(tensor.param, tensor.first + first / size, values);
  if (full) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return;
  }
  std::vector<uint16_t> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), bf16_from_f32);
  std::memcpy(bytes.data(), halves.data(), bytes.size());
}

// Everything that the exported folder holds.
struct Contents {
  std::vector<PlannedFile> files;
  std::vector<FileRange> ranges;
  std::vector<std::function<void(int64_t, std::span<std::byte>)>> fills;  // by range

  void add_text(const std::string& name, const std::string& text) {
    files.push_back({name, std::ssize(text)});
    add(files.size() - 1, 0, text);
  }
  void add(size_t file, int64_t offset, const std::string& text) {
    ranges.push_back({file, offset, std::ssize(text)});
    fills.emplace_back([text](int64_t first, std::span<std::byte> bytes) {
      std::memcpy(bytes.data(), text.data() + first, bytes.size());
    });
  }
};

Contents contents_of(const std::string& folder, const ModelSpec& spec, const Source& source,
                     const std::vector<ExportedTensor>& tensors, const ExportOptions& options) {
  std::vector<TensorSpec> specs;
  for (const ExportedTensor& tensor : tensors) specs.push_back(tensor.spec);
  const TensorLayout layout = lay_out(kModelStem, specs, options.max_file_bytes);
  Contents contents;
  size_t next = 0;
  for (size_t file = 0; file < layout.files.size(); ++file) {
    contents.files.push_back({layout.files[file].name, layout.files[file].bytes});
    contents.add(file, 0, layout.files[file].header);
    for (; next < tensors.size() && layout.places[next].file == file; ++next) {
      contents.ranges.push_back({file, layout.places[next].offset, tensor_bytes(specs[next])});
      const ExportedTensor& tensor = tensors[next];
      contents.fills.emplace_back(
          [&](int64_t first, std::span<std::byte> bytes) { fill(source, tensor, first, bytes); });
    }
  }
  if (!layout.index_name.empty()) contents.add_text(layout.index_name, layout.index_text);
  const TextFile config = model_config_text(spec, options.dtype);
  contents.add_text(config.name, config.text);
  for (const TextFile& other : other_texts(folder)) contents.add_text(other.name, other.text);
  return contents;
}

}  // namespace

Exported export_weights(const std::string& from, const std::string& to,
                        const ExportOptions& options) {
  const std::string folder = find_weights(from);
  ModelSpec spec = read_hf_config(folder + "/config.json");
  std::vector<ParamInfo> params = build_model(spec, {}).params;
  const std::vector<ExportedTensor> tensors =
      exported_tensors(params, options.dtype == Precision::Float32 ? "F32" : "BF16");
  const Source source(folder, spec, std::move(params));
  if (path_exists(to)) {
    throw UserError(ExitCode::CannotWrite,
                    cat(to, ": exists already; remove it or give another folder"));
  }
  const Contents contents = contents_of(folder, spec, source, tensors, options);
  make_directories(folder_of(to));
  const std::string partial = cat(to, ".partial-", to_hex(random_tag()));
  make_folder(partial);
  try {
    reserve_files(partial, contents.files);
    write_ranges(partial, contents.files, contents.ranges,
                 [&](size_t range, int64_t first, std::span<std::byte> bytes) {
                   contents.fills[range](first, bytes);
                 });
    sync_folder(partial);
    rename_durably(partial, to);
  } catch (...) {
    remove_folder(partial);
    throw;
  }
  Exported exported{folder, 0};
  for (const PlannedFile& file : contents.files) exported.bytes += file.bytes;
  return exported;
}

}  // namespace weft
