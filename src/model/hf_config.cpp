#include "model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "config/value.h"

namespace weft {
namespace {

using nlohmann::json;

constexpr int64_t kMaxConfigBytes = 1 << 20;

// A short form of a value for an error message.
std::string shown(const json& value) {
  return shortened(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

}  // namespace

bool HfReader::has(const std::string& key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

int64_t HfReader::whole_number(const std::string& key, uint64_t least) const {
  if (!has(key)) refuse(cat("\"", key, "\" is missing"));
  const json& value = object_[key];
  constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
  // get<> wraps a number that does not fit, so the range is checked as unsigned.
  if (!value.is_number_unsigned() || value.get<uint64_t>() < least ||
      value.get<uint64_t>() > kMax) {
    refuse(cat("\"", key, "\" is ", shown(value), ", expected a whole number from ", least, " to ",
               kMax));
  }
  return value.get<int64_t>();
}

int64_t HfReader::size(const std::string& key) const {
  return whole_number(key, 1);
}

int64_t HfReader::count_or(const std::string& key, int64_t otherwise) const {
  return has(key) ? whole_number(key, 0) : otherwise;
}

int64_t HfReader::size_or(const std::string& key, int64_t otherwise) const {
  return has(key) ? size(key) : otherwise;
}

int64_t HfReader::quotient(const std::string& total_key, const std::string& part) const {
  const int64_t total = size(total_key);
  const int64_t parts = size(part);
  if (total % parts != 0) {
    refuse(cat("\"", part, "\" = ", parts, " does not divide \"", total_key, "\" = ", total));
  }
  return total / parts;
}

double HfReader::number(const std::string& key) const {
  if (!has(key)) refuse(cat("\"", key, "\" is missing"));
  const json& value = object_[key];
  if (!value.is_number()) refuse(cat("\"", key, "\" is ", shown(value), ", expected a number"));
  return value.get<double>();
}

double HfReader::number_or(const std::string& key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

bool HfReader::flag_or(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const json& value = object_[key];
  if (!value.is_boolean()) {
    refuse(cat("\"", key, "\" is ", shown(value), ", expected true or false"));
  }
  return value.get<bool>();
}

bool HfReader::flag_or_number(const std::string& key, bool otherwise) const {
  return has(key) && object_[key].is_number() ? number(key) != 0 : flag_or(key, otherwise);
}

std::string HfReader::text_or(const std::string& key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  const json& value = object_[key];
  if (!value.is_string()) refuse(cat("\"", key, "\" is ", shown(value), ", expected a string"));
  return value.get<std::string>();
}

std::vector<int64_t> HfReader::indices(const std::string& key) const {
  if (!has(key)) return {};
  const json& value = object_[key];
  const auto fits = [](const json& item) {
    return item.is_number_unsigned() && item.get<uint64_t>() < uint64_t{1} << 31;
  };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), fits)) {
    refuse(cat("\"", key, "\" is ", shown(value), ", expected a list of numbers from 0 on"));
  }
  return value.get<std::vector<int64_t>>();
}

std::vector<std::string> HfReader::texts(const std::string& key) const {
  if (!has(key)) return {};
  const json& value = object_[key];
  const auto is_text = [](const json& item) { return item.is_string(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text)) {
    refuse(cat("\"", key, "\" is ", shown(value), ", expected a list of strings"));
  }
  return value.get<std::vector<std::string>>();
}

std::vector<int64_t> HfReader::token_ids(const std::string& key, int64_t vocab_size) const {
  std::vector<int64_t> ids;
  if (!has(key)) return ids;
  const json& value = object_[key];
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_integer()) {
      refuse(cat("\"", key, "\" is ", shown(value), ", expected a token id or a list of them"));
    }
    // Some programs write a negative id for "none".
    if (id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocab_size)) {
      ids.push_back(id.get<int64_t>());
    }
  }
  return ids;
}

void HfReader::require_flag(const std::string& key, bool supported) const {
  if (flag_or(key, supported) != supported) {
    refuse(cat("\"", key, "\" is ", supported ? "false" : "true", ", which is not supported"));
  }
}

void HfReader::require_text(const std::string& key,
                            const std::vector<std::string>& supported) const {
  const std::string text = text_or(key, supported.front());
  if (std::find(supported.begin(), supported.end(), text) == supported.end()) {
    refuse(cat("\"", key, "\" is ", shown(object_[key]), ", expected ", choices_phrase(supported)));
  }
}

void HfReader::read_rope(ModelSpec& spec) const {
  static const json none = json::object();
  const std::string group = has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (has(group) && !object_[group].is_object()) {
    refuse(cat("\"", group, "\" is ", shown(object_[group]), ", expected an object"));
  }
  const HfReader rope(has(group) ? object_[group] : none, cat(where_, ": \"", group, "\""));
  spec.rope_theta = rope.number_or("rope_theta", number_or("rope_theta", spec.rope_theta));
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  rope.require_text(type_key, {"default", "llama3", "yarn"});
  const std::string type = rope.text_or(type_key, "default");
  if (type == "default") return;
  RopeScaling& scaling = spec.rope_scaling;
  const std::string original = "original_max_position_embeddings";
  scaling = {.mscale_all_dim = rope.number_or("mscale_all_dim", 0)};
  if (type == "llama3") {
    scaling.factor = rope.number("factor");
    scaling.low_freq_factor = rope.number("low_freq_factor");
    scaling.high_freq_factor = rope.number("high_freq_factor");
    scaling.original_max_position = rope.size(original);
    return;
  }
  scaling.original_max_position = rope.size_or(original, spec.max_seq_len);
  scaling.factor = rope.number_or("factor", static_cast<double>(spec.max_seq_len) /
                                                static_cast<double>(scaling.original_max_position));
  scaling.low_freq_factor = rope.number_or("beta_slow", 1);
  scaling.high_freq_factor = rope.number_or("beta_fast", 32);
  scaling.yarn = true;
  scaling.truncate = rope.flag_or("truncate", true);
  scaling.attention_factor = rope.number_or("attention_factor", 0);
  scaling.mscale = rope.number_or("mscale", 0);
}

void HfReader::refuse(const std::string& message) const {
  throw UserError(ExitCode::InputFile, cat(where_, ": ", message));
}

HfWriter::HfWriter() : object_(std::make_unique<nlohmann::ordered_json>()) {}
HfWriter::~HfWriter() = default;

void HfWriter::set(const std::string& key, int64_t value) {
  (*object_)[key] = value;
}

void HfWriter::set(const std::string& key, double value) {
  (*object_)[key] = value;
}

void HfWriter::set(const std::string& key, bool value) {
  (*object_)[key] = value;
}

void HfWriter::set(const std::string& key, const char* value) {
  (*object_)[key] = value;
}

void HfWriter::set_null(const std::string& key) {
  (*object_)[key] = nullptr;
}

void HfWriter::set_list(const std::string& key, const std::vector<std::string>& values) {
  (*object_)[key] = values;
}

void HfWriter::set_indices(const std::string& key, const std::vector<int64_t>& values) {
  (*object_)[key] = values;
}

void HfWriter::set_token_ids(const std::string& key, const std::vector<int64_t>& ids) {
  if (ids.empty()) return set_null(key);
  if (ids.size() == 1) return set(key, ids.front());
  (*object_)[key] = ids;
}

void HfWriter::set_rope(const ModelSpec& spec) {
  const RopeScaling& scaling = spec.rope_scaling;
  set("rope_theta", spec.rope_theta);
  if (scaling.factor == 0) return set_null("rope_scaling");
  nlohmann::ordered_json& object = (*object_)["rope_scaling"];
  object["factor"] = scaling.factor;
  object[scaling.yarn ? "beta_fast" : "high_freq_factor"] = scaling.high_freq_factor;
  object[scaling.yarn ? "beta_slow" : "low_freq_factor"] = scaling.low_freq_factor;
  if (scaling.attention_factor > 0) object["attention_factor"] = scaling.attention_factor;
  if (scaling.mscale > 0) object["mscale"] = scaling.mscale;
  if (scaling.mscale_all_dim > 0) object["mscale_all_dim"] = scaling.mscale_all_dim;
  object["original_max_position_embeddings"] = scaling.original_max_position;
  object["rope_type"] = scaling.yarn ? "yarn" : "llama3";
  if (!scaling.truncate) object["truncate"] = false;
}

std::string HfWriter::text() const {
  return object_->dump(2) + "\n";
}

namespace {

// The model that an object describes.
ModelSpec read_model(const json& object, const std::string& where) {
  const std::string type = json_string(object, "model_type", where);
  std::vector<std::string> known;
  for (const ModelDef* def : all_models()) {
    known.emplace_back(def->hf_model_type);
    if (def->hf_model_type != type) continue;
    const HfReader reader(object, where);
    ModelSpec spec = def->from_hf(reader);
    spec.model = def->name;
    spec.bos_token_ids = reader.token_ids("bos_token_id", spec.vocab_size);
    spec.eos_token_ids = reader.token_ids("eos_token_id", spec.vocab_size);
    try {
      check_model(spec);
    } catch (const UserError& error) {
      throw UserError(ExitCode::InputFile,
                      cat(where, ": describes a model that cannot be built: ", error.what()));
    }
    return spec;
  }
  throw UserError(ExitCode::InputFile, cat(where, ": \"model_type\" is ", shown(json(type)),
                                           ", expected ", choices_phrase(known)));
}

}  // namespace

ModelSpec parse_hf_config(std::string_view text, const std::string& where) {
  const json file = parse_json(text, where);
  // A model that also reads images describes its text model in an object of its own.
  const auto inner = file.find("text_config");
  const bool nested = inner != file.end() && inner->is_object();
  return read_model(nested ? *inner : file, nested ? cat(where, ": \"text_config\"") : where);
}

ModelSpec read_hf_config(const std::string& path) {
  return parse_hf_config(read_text_file(path, kMaxConfigBytes), path);
}

void read_token_ids(const std::string& path, ModelSpec& spec) {
  const json object = parse_json(read_text_file(path, kMaxConfigBytes), path);
  const HfReader reader(object, path);
  if (reader.has("bos_token_id")) {
    spec.bos_token_ids = reader.token_ids("bos_token_id", spec.vocab_size);
  }
  if (reader.has("eos_token_id")) {
    spec.eos_token_ids = reader.token_ids("eos_token_id", spec.vocab_size);
  }
}

std::string hf_config_text(const ModelSpec& spec, const char* torch_dtype) {
  const ModelDef& def = find_model(spec.model);
  HfWriter writer;
  writer.set("model_type", std::string(def.hf_model_type).c_str());
  def.to_hf(spec, writer);
  writer.set("torch_dtype", torch_dtype);
  writer.set("use_cache", true);
  writer.set("vocab_size", spec.vocab_size);
  return writer.text();
}

}  // namespace weft
