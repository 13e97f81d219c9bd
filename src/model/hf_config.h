// Reads and writes a model's sizes as a Hugging Face config.json. Each model's own file defines
// what the fields mean (ModelDef::from_hf, to_hf). This file has the typed access to fields, and
// RoPE, whose spelling changed between transformers 4 and 5: both are read, the older one is
// written.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace weft {

// Fields of a config.json; every error is one sentence that starts with the path. A null field
// counts as absent.
class HfReader {
 public:
  HfReader(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  bool has(const std::string& key) const;
  // A whole number from 1 to 2^31 - 1.
  int64_t size(const std::string& key) const;
  int64_t size_or(const std::string& key, int64_t otherwise) const;
  // The same from 0 on.
  int64_t count_or(const std::string& key, int64_t otherwise) const;
  // size(total_key) / size(part), which must divide evenly.
  int64_t quotient(const std::string& total_key, const std::string& part) const;
  double number(const std::string& key) const;
  double number_or(const std::string& key, double otherwise) const;
  bool flag_or(const std::string& key, bool otherwise) const;
  // A flag that may also be a number, which is true unless it is 0.
  bool flag_or_number(const std::string& key, bool otherwise) const;
  std::string text_or(const std::string& key, const std::string& otherwise) const;

  // A list of numbers from 0 on, such as those of layers; empty if the field is absent.
  std::vector<int64_t> indices(const std::string& key) const;
  // A list of strings; empty if the field is absent.
  std::vector<std::string> texts(const std::string& key) const;

  // One id, several or none; ids outside a vocabulary of this size are dropped.
  std::vector<int64_t> token_ids(const std::string& key, int64_t vocab_size) const;

  // Rejects a flag value that the model does not support.
  void require_flag(const std::string& key, bool supported) const;
  // Rejects a string that is not supported; an absent one means the first.
  void require_text(const std::string& key, const std::vector<std::string>& supported) const;

  // Theta, unless it is absent, and scaling, in either spelling.
  void read_rope(ModelSpec& spec) const;

  [[noreturn]] void refuse(const std::string& message) const;

 private:
  int64_t whole_number(const std::string& key, uint64_t least) const;

  const nlohmann::json& object_;
  std::string where_;
};

// The fields of a config.json to be written, in order.
class HfWriter {
 public:
  HfWriter();
  ~HfWriter();

  void set(const std::string& key, int64_t value);
  void set(const std::string& key, double value);
  void set(const std::string& key, bool value);
  void set(const std::string& key, const char* value);
  void set_null(const std::string& key);
  void set_list(const std::string& key, const std::vector<std::string>& values);
  void set_indices(const std::string& key, const std::vector<int64_t>& values);
  // One id as a number, several as a list, none as null.
  void set_token_ids(const std::string& key, const std::vector<int64_t>& ids);
  void set_rope(const ModelSpec& spec);

  std::string text() const;

 private:
  std::unique_ptr<nlohmann::ordered_json> object_;
};

// The model that this text describes; `where` (a path) starts every error message.
ModelSpec parse_hf_config(std::string_view text, const std::string& where);
ModelSpec read_hf_config(const std::string& path);

// Copies the ids that begin and end a text from a config.json, if it has them.
void read_token_ids(const std::string& path, ModelSpec& spec);

// The config.json of a model, for transformers; `torch_dtype` is the type of the stored weights
// ("float32", "bfloat16").
std::string hf_config_text(const ModelSpec& spec, const char* torch_dtype);

}  // namespace weft
