#include "train/weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace weft {

namespace {

constexpr int64_t kBytesAtOnce = 1 << 20;

int64_t bytes_of(const TensorEntry& entry) {
  return entry.end - entry.begin;
}

bool is_supported(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// Elements of one tensor, from `first` on.
void read_tensor(const SafetensorsModel& files, const std::string& name, int64_t first,
                 std::span<float> values) {
  const TensorEntry* entry = files.find(name);
  INPUT_CHECK(entry != nullptr, files.path(), ": tensor ", in_quotes(name), " is missing");
  if (entry->dtype == "F32") {
    files.read(name, first * 4, std::as_writable_bytes(values));
    return;
  }
  const auto convert = entry->dtype == "BF16" ? f32_from_bf16 : f32_from_f16;
  std::vector<uint16_t> halves(values.size());
  files.read(name, first * 2, std::as_writable_bytes(std::span(halves)));
  std::transform(halves.begin(), halves.end(), values.begin(), convert);
}

// Whether two tensors of the same size have the same bytes.
bool same_bytes(const SafetensorsModel& files, const TensorEntry& a, const TensorEntry& b) {
  std::vector<std::byte> left, right;
  for (int64_t at = 0; at < bytes_of(a); at += kBytesAtOnce) {
    const int64_t length = std::min(kBytesAtOnce, bytes_of(a) - at);
    left.resize(static_cast<size_t>(length));
    right.resize(left.size());
    files.read(a.name, at, left);
    files.read(b.name, at, right);
    if (left != right) return false;
  }
  return true;
}

}  // namespace

void read_elements(const SafetensorsModel& files, const ParamInfo& param, std::string_view prefix,
                   int64_t first, std::span<float> values) {
  const int64_t row = row_elements(param);
  const int64_t end = first + std::ssize(values);
  for (const NamedRows& rows : param.slices) {
    const int64_t begin = rows.first * row;
    const int64_t from = std::max(first, begin);
    const int64_t to = std::min(end, begin + rows.count * row);
    if (from >= to) continue;
    read_tensor(files, cat(prefix, rows.name), from - begin,
                values.subspan(static_cast<size_t>(from - first), static_cast<size_t>(to - from)));
  }
}

WeightFiles::WeightFiles(const std::string& path, const ModelDef& def,
                         std::span<const ParamInfo> params, const Manifest* manifest)
    : files_(SafetensorsModel::open(path, "model", manifest)),
      def_(def),
      params_(params.begin(), params.end()) {
  for (ParamInfo& param : params_) claim_param(param);
  check_rest();
}

void WeightFiles::read(size_t param, int64_t first, std::span<float> values) const {
  read_elements(files_, params_.at(param), "", first, values);
}

std::vector<float> WeightFiles::read(size_t param) const {
  std::vector<float> values(static_cast<size_t>(count(params_.at(param).shape)));
  read(param, 0, values);
  return values;
}

// Checks that the parameter's tensors exist, and notes their names in these files.
void WeightFiles::claim_param(ParamInfo& param) {
  if (!param.stacked.empty() && find(param.stacked) != nullptr) {
    param.slices = {{param.stacked, 0, count(param.shape) / row_elements(param)}};
  }
  for (NamedRows& rows : param.slices) {
    const TensorEntry* entry = claim(rows.name, slice_shape(param, rows));
    INPUT_CHECK(entry != nullptr, files_.path(), ": tensor \"", rows.name, "\" is missing");
    rows.name = entry->name;
  }
  for (const std::string& alias : param.aliases) check_alias(param, alias);
  for (const NamedZeros& zeros : param.zeros) check_zeros(zeros);
}

// The tensor under its name, with or without the prefixes.
const TensorEntry* WeightFiles::find(const std::string& name) const {
  const TensorEntry* entry = files_.find(name);
  if (entry == nullptr && !def_.outer_prefix.empty()) {
    entry = files_.find(cat(def_.outer_prefix, name));
  }
  if (entry == nullptr && !def_.weight_prefix.empty() && name.starts_with(def_.weight_prefix)) {
    entry = files_.find(std::string_view(name).substr(def_.weight_prefix.size()));
  }
  return entry;
}

const TensorEntry* WeightFiles::claim(const std::string& name, const Shape& shape) {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) return nullptr;
  INPUT_CHECK(entry->shape == shape, files_.path(), ": tensor \"", entry->name, "\" is ",
              to_string(entry->shape), ", expected ", to_string(shape));
  INPUT_CHECK(is_supported(entry->dtype), files_.path(), ": tensor \"", entry->name, "\" is ",
              entry->dtype, ", expected F32, BF16 or F16");
  used_.insert(entry->name);
  return entry;
}

void WeightFiles::check_alias(const ParamInfo& param, const std::string& alias) {
  const TensorEntry* copy = claim(alias, param.shape);
  if (copy == nullptr) return;
  const TensorEntry* entry = find(param.slices.front().name);
  INPUT_CHECK(entry->dtype == copy->dtype && same_bytes(files_, *entry, *copy), files_.path(),
              ": tensor \"", copy->name, "\" differs from \"", entry->name,
              "\", to which the model ties it; set model.tie_embeddings = false");
}

void WeightFiles::check_zeros(const NamedZeros& zeros) {
  const TensorEntry* entry = claim(zeros.name, zeros.shape);
  if (entry == nullptr) return;
  std::vector<float> values(static_cast<size_t>(count(zeros.shape)));
  read_tensor(files_, entry->name, 0, values);
  INPUT_CHECK(std::all_of(values.begin(), values.end(), [](float x) { return x == 0; }),
              files_.path(), ": tensor \"", entry->name,
              "\" is not zero, but the model has no biases; set model.bias = true");
}

// Rejects unused tensors.
void WeightFiles::check_rest() const {
  for (const std::string& name : files_.names()) {
    INPUT_CHECK(used_.contains(name) || is_skipped(name), files_.path(), ": tensor \"", name,
                "\" is not a weight of this ", def_.name,
                " model; check that its sizes and options ", "are those of the file");
  }
}

bool WeightFiles::is_skipped(const std::string& name) const {
  const bool ends_so = std::any_of(def_.skipped_weights.begin(), def_.skipped_weights.end(),
                                   [&](std::string_view end) { return name.ends_with(end); });
  return ends_so || is_in_skipped_layer(name) || is_outside(name);
}

// Whether "layers.7.x" is next to a "layers.7.y" that the layers of this model do not have.
bool WeightFiles::is_in_skipped_layer(const std::string& name) const {
  const size_t layers = name.find("layers.");
  if (def_.skipped_layers.empty() || layers == std::string::npos) return false;
  const size_t end = name.find('.', layers + std::string_view("layers.").size());
  if (end == std::string::npos) return false;
  return files_.find(name.substr(0, end + 1) + std::string(def_.skipped_layers)) != nullptr;
}

// Whether the weights of this model are in the file of a larger one, and this is none of them.
bool WeightFiles::is_outside(const std::string& name) const {
  return !def_.outer_prefix.empty() && !name.starts_with(def_.outer_prefix) &&
         std::all_of(used_.begin(), used_.end(),
                     [&](const std::string& used) { return used.starts_with(def_.outer_prefix); });
}

}  // namespace weft
