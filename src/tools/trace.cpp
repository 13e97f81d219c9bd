// Reads trace folders.
#include "tools/trace.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/hf_config.h"

namespace weft {

namespace {

using nlohmann::json;

constexpr int64_t kMaxTraceBytes = int64_t{64} << 20;

const json& field(const json& object, const char* key, const std::string& where) {
  INPUT_CHECK(object.is_object() && object.contains(key), where, ": the field \"", key,
              "\" is missing");
  return object.at(key);
}

double number(const json& object, const char* key, const std::string& where) {
  const json& value = field(object, key, where);
  INPUT_CHECK(value.is_number(), where, ": the field \"", key, "\" is not a number");
  return value.get<double>();
}

std::vector<double> numbers(const json& object, const char* key, const std::string& where) {
  const json& list = field(object, key, where);
  INPUT_CHECK(list.is_array() && !list.empty(), where, ": the field \"", key,
              "\" is not a list of numbers");
  std::vector<double> values;
  for (const json& value : list) {
    INPUT_CHECK(value.is_number(), where, ": the field \"", key, "\" is not a list of numbers");
    values.push_back(value.get<double>());
  }
  return values;
}

// Rows of seq + 1 tokens: all but the last are inputs, all but the first are targets.
void read_tokens(const json& object, const std::string& where, Trace& trace) {
  const json& rows = field(object, "tokens", where);
  INPUT_CHECK(rows.is_array() && !rows.empty() && rows[0].is_array() && rows[0].size() >= 2, where,
              ": \"tokens\" is not a list of rows of at least 2 tokens");
  trace.batch = static_cast<int64_t>(rows.size());
  trace.seq_len = static_cast<int64_t>(rows[0].size()) - 1;
  for (const json& row : rows) {
    INPUT_CHECK(row.is_array() && row.size() == rows[0].size(), where,
                ": the rows of \"tokens\" differ in length");
    for (size_t i = 0; i < row.size(); ++i) {
      INPUT_CHECK(row[i].is_number_integer() && row[i].get<int64_t>() >= 0 &&
                      row[i].get<int64_t>() < trace.spec.vocab_size,
                  where, ": token ", row[i].dump(), " is outside the vocabulary of ",
                  trace.spec.vocab_size);
      auto token = row[i].get<int32_t>();
      if (i + 1 < row.size()) trace.tokens.push_back(token);
      if (i > 0) trace.targets.push_back(token);
    }
  }
}

}  // namespace

Trace read_trace(const std::string& folder) {
  Trace trace;
  trace.spec = read_hf_config(folder + "/config.json");
  std::string where = folder + "/trace.json";
  json object = parse_json(read_text_file(where, kMaxTraceBytes), where);
  read_tokens(object, where, trace);
  trace.losses = numbers(object, "losses", where);
  trace.grad_norms = numbers(object, "grad_norms_before_clip", where);
  INPUT_CHECK(trace.grad_norms.size() == trace.losses.size(), where, ": ", trace.losses.size(),
              " losses but ", trace.grad_norms.size(), " gradient norms");
  const json& optimizer = field(object, "optimizer", where);
  trace.optimizer = {.lr = number(optimizer, "lr", where),
                     .beta1 = number(optimizer, "beta1", where),
                     .beta2 = number(optimizer, "beta2", where),
                     .eps = number(optimizer, "eps", where),
                     .weight_decay = number(optimizer, "weight_decay", where),
                     .clip_norm = number(optimizer, "clip_norm", where)};
  return trace;
}

}  // namespace weft
