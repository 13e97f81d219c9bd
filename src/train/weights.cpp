#include "train/weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "base/file.h"
#include "base/half.h"
#include "checkpoint/safetensors_model.h"
#include "checkpoint/safetensors_writer.h"
#include "model/hf_config.h"

namespace weft {
namespace {

Shape slice_shape(const ParamInfo& param, const NamedRows& rows) {
  Shape shape = param.shape;
  shape.at(0) = rows.count;
  return shape;
}

template <class Element, class Convert>
void convert(std::span<const std::byte> bytes, std::span<float> values, Convert to_f32) {
  for (size_t i = 0; i < values.size(); ++i) {
    Element element;
    std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
    values[i] = to_f32(element);
  }
}

bool is_supported(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

void to_f32(const TensorEntry& entry, std::span<const std::byte> bytes, std::span<float> values) {
  if (entry.dtype == "F32") {
    CHECK(bytes.size() == values.size_bytes(), entry.name);
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else if (entry.dtype == "BF16") {
    convert<uint16_t>(bytes, values, f32_from_bf16);
  } else {
    convert<uint16_t>(bytes, values, f32_from_f16);
  }
}

// Matches the tensors of a file with the parameters of a model.
class Loader {
 public:
  Loader(const std::string& path, const ModelDef& def)
      : files_(SafetensorsModel::open(path)), def_(def) {}

  // Checks that the parameter's tensors exist and marks them as used.
  void claim(const ParamInfo& param) {
    for (const NamedRows& rows : param.slices) {
      const TensorEntry* entry = claim(rows.name, slice_shape(param, rows));
      INPUT_CHECK(entry != nullptr, files_.path(), ": tensor \"", rows.name, "\" is missing");
    }
    for (const std::string& alias : param.aliases) check_alias(param, alias);
    for (const NamedZeros& zeros : param.zeros) check_zeros(zeros);
  }

  // Rejects unused tensors.
  void check_rest() const {
    for (const std::string& name : files_.names()) {
      INPUT_CHECK(used_.contains(name) || is_skipped(name), files_.path(), ": tensor \"", name,
                  "\" is not a weight of this ", def_.name,
                  " model; check that its sizes and options ", "are those of the file");
    }
  }

  void read(const ParamInfo& param, std::span<float> values) const {
    const int64_t row = count(param.shape) / param.shape.at(0);
    for (const NamedRows& rows : param.slices) {
      read(rows.name, values.subspan(static_cast<size_t>(rows.first * row),
                                     static_cast<size_t>(rows.count * row)));
    }
  }

 private:
  // The tensor under its name, with or without the model's prefix.
  const TensorEntry* find(const std::string& name) const {
    const TensorEntry* entry = files_.find(name);
    if (entry == nullptr && !def_.weight_prefix.empty() && name.starts_with(def_.weight_prefix)) {
      entry = files_.find(std::string_view(name).substr(def_.weight_prefix.size()));
    }
    return entry;
  }

  const TensorEntry* claim(const std::string& name, const Shape& shape) {
    const TensorEntry* entry = find(name);
    if (entry == nullptr) return nullptr;
    INPUT_CHECK(entry->shape == shape, files_.path(), ": tensor \"", entry->name, "\" is ",
                to_string(entry->shape), ", expected ", to_string(shape));
    INPUT_CHECK(is_supported(entry->dtype), files_.path(), ": tensor \"", entry->name, "\" is ",
                entry->dtype, ", expected F32, BF16 or F16");
    used_.insert(entry->name);
    return entry;
  }

  void check_alias(const ParamInfo& param, const std::string& alias) {
    const TensorEntry* copy = claim(alias, param.shape);
    if (copy == nullptr) return;
    const TensorEntry* entry = find(param.slices.front().name);
    const auto a = files_.bytes(entry->name);
    const auto b = files_.bytes(copy->name);
    INPUT_CHECK(entry->dtype == copy->dtype && std::equal(a.begin(), a.end(), b.begin(), b.end()),
                files_.path(), ": tensor \"", copy->name, "\" differs from \"", entry->name,
                "\", to which the model ties it; set model.tie_embeddings = false");
  }

  void check_zeros(const NamedZeros& zeros) {
    const TensorEntry* entry = claim(zeros.name, zeros.shape);
    if (entry == nullptr) return;
    std::vector<float> values(static_cast<size_t>(count(zeros.shape)));
    to_f32(*entry, files_.bytes(entry->name), values);
    INPUT_CHECK(std::all_of(values.begin(), values.end(), [](float x) { return x == 0; }),
                files_.path(), ": tensor \"", entry->name,
                "\" is not zero, but the model has no biases; set model.bias = true");
  }

  bool is_skipped(const std::string& name) const {
    return std::any_of(def_.skipped_weights.begin(), def_.skipped_weights.end(),
                       [&](std::string_view end) { return name.ends_with(end); });
  }

  void read(const std::string& name, std::span<float> values) const {
    const TensorEntry* entry = find(name);
    to_f32(*entry, files_.bytes(entry->name), values);
  }

  SafetensorsModel files_;
  const ModelDef& def_;
  std::set<std::string> used_;
};

// Writes f32 values in the file's type.
void append(SafetensorsWriter& writer, std::span<const float> values, Precision dtype) {
  if (dtype == Precision::Float32) {
    writer.append(std::as_bytes(values));
    return;
  }
  constexpr size_t kChunk = 1 << 16;
  std::vector<uint16_t> halves;
  for (size_t first = 0; first < values.size(); first += kChunk) {
    const auto chunk = values.subspan(first, std::min(kChunk, values.size() - first));
    halves.resize(chunk.size());
    std::transform(chunk.begin(), chunk.end(), halves.begin(), bf16_from_f32);
    writer.append(std::as_bytes(std::span(halves)));
  }
}

std::vector<TensorSpec> tensor_specs(std::span<const ParamInfo> params, const std::string& dtype) {
  std::vector<TensorSpec> specs;
  for (const ParamInfo& param : params) {
    for (const NamedRows& rows : param.slices) {
      specs.push_back({rows.name, dtype, slice_shape(param, rows)});
    }
    for (const NamedZeros& zeros : param.zeros) specs.push_back({zeros.name, dtype, zeros.shape});
  }
  return specs;
}

void write_params(SafetensorsWriter& writer, std::span<const ParamInfo> params, const GetParam& get,
                  Precision dtype) {
  std::vector<float> values;
  for (size_t i = 0; i < params.size(); ++i) {
    values.resize(static_cast<size_t>(count(params[i].shape)));
    get(i, values);
    append(writer, values, dtype);  // the slices cover all rows in order
    for (const NamedZeros& zeros : params[i].zeros) {
      append(writer, std::vector<float>(static_cast<size_t>(count(zeros.shape))), dtype);
    }
  }
}

// The tokenizer determines the ids that begin and end a text, unless a config.json has set them.
ModelSpec with_token_ids(ModelSpec spec, const std::optional<Tokenizer>& tokenizer) {
  if (!tokenizer) return spec;
  const auto begin = tokenizer->begin_token();
  const auto end = tokenizer->end_token();
  if (begin && spec.bos_token_ids.empty()) spec.bos_token_ids = {*begin};
  if (end && spec.eos_token_ids.empty()) spec.eos_token_ids = {*end};
  return spec;
}

}  // namespace

void check_weights(const std::string& path, const ModelDef& def,
                   std::span<const ParamInfo> params) {
  Loader loader(path, def);
  for (const ParamInfo& param : params) loader.claim(param);
  loader.check_rest();
}

void load_weights(const std::string& path, const ModelDef& def, std::span<const ParamInfo> params,
                  const PutParam& put) {
  Loader loader(path, def);
  for (const ParamInfo& param : params) loader.claim(param);
  loader.check_rest();
  std::vector<float> values;
  for (size_t i = 0; i < params.size(); ++i) {
    values.resize(static_cast<size_t>(count(params[i].shape)));
    loader.read(params[i], values);
    put(i, values);
  }
}

void save_weights(const std::string& folder, const ModelSpec& spec,
                  std::span<const ParamInfo> params, const GetParam& get,
                  const SaveOptions& options) {
  const bool full = options.dtype == Precision::Float32;
  make_directories(folder);
  std::vector<OutputFile> texts;
  const auto add = [&](const char* name, const std::string& text) {
    texts.emplace_back(cat(folder, "/", name));
    texts.back().write(text);
    texts.back().finish();
  };
  add("config.json",
      hf_config_text(with_token_ids(spec, options.tokenizer), full ? "float32" : "bfloat16"));
  if (options.tokenizer) {
    add(Tokenizer::kFileName, options.tokenizer->file_text());
    add("tokenizer_config.json", options.tokenizer->config_text(spec.max_seq_len));
  }
  SafetensorsWriter weights(folder + "/model.safetensors",
                            tensor_specs(params, full ? "F32" : "BF16"));
  write_params(weights, params, get, options.dtype);
  weights.commit();
  for (OutputFile& text : texts) text.commit();
}

}  // namespace weft
