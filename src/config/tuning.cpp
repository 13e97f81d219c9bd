// The tuning file: device, library, and one string "call: algorithm" per choice.
#include "config/tuning.h"

#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/schema.h"
#include "config/toml_file.h"

namespace weft {
namespace {

constexpr std::string_view kSeparator = ": ";

Key<Tuning> choices_key(const std::string& file_name) {
  Key<Tuning> key;
  key.name = "choices";
  key.rule.type = ValueType::TextList;
  key.get = [](const Tuning& tuning) {
    std::vector<std::string> texts;
    for (const auto& [call, choice] : tuning.choices)
      texts.push_back(cat(call, kSeparator, choice));
    return ConfigValue(texts);
  };
  key.set = [=](Tuning& tuning, const ConfigValue& value) {
    const auto& texts = std::get<std::vector<std::string>>(value);
    USER_CHECK(!texts.empty(), file_name,
               ": choices: none, expected at least one; create the file with weft bench tune");
    for (const std::string& text : texts) {
      const size_t at = text.find(kSeparator);
      USER_CHECK(at != std::string::npos && at > 0, file_name, ": choices: ", in_quotes(text),
                 " is not \"call: algorithm\"; create the file with weft bench tune");
      tuning.choices[text.substr(0, at)] = text.substr(at + kSeparator.size());
    }
  };
  return key;
}

std::vector<Key<Tuning>> tuning_keys(const std::string& file_name) {
  return {
      make_key("device", &Tuning::device, {.doc = "Device that was measured."}),
      make_key("library", &Tuning::library, {.doc = "Library and version that was measured."}),
      choices_key(file_name),
  };
}

}  // namespace

Tuning load_tuning(const Config& config) {
  const std::string& path = config.device.tuning;
  return path.empty() ? Tuning{} : parse_tuning(read_config_file(path), path);
}

Tuning parse_tuning(std::string_view toml, const std::string& file_name) {
  Tuning tuning;
  const std::vector<Key<Tuning>> keys = tuning_keys(file_name);
  std::vector<std::string> missing;
  for (const Key<Tuning>& key : keys) missing.push_back(key.name);
  for (const Entry& entry : read_toml(toml, file_name)) {
    apply_entry(keys, entry, tuning);
    std::erase(missing, entry.key);
  }
  USER_CHECK(missing.empty(), file_name, ": no value for ", join(missing, ", "),
             "; create the file with weft bench tune");
  return tuning;
}

std::string tuning_to_toml(const Tuning& tuning) {
  std::string out;
  for (const Key<Tuning>& key : tuning_keys("")) {
    out += cat(key.name, " = ", value_to_toml(key.get(tuning)), "\n");
  }
  return out;
}

}  // namespace weft
