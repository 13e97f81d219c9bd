// Generates docs/config.md from the schema and the choices that other folders list.
#include "base/text.h"
#include "config/load.h"
#include "config/schema.h"

namespace weft {
namespace {

std::vector<std::string> choices_of(const Key<Config>& key, const ConfigChoices& sets) {
  std::vector<std::string> choices = key.rule.choices;
  for (const Choices& set : sets) {
    if (set.key != key.name) continue;
    for (const Choices::Member& member : set.members) {
      choices.emplace_back(member.name);
    }
  }
  return choices;
}

std::string type_text(const Key<Config>& key, const ConfigChoices& sets) {
  std::vector<std::string> choices = choices_of(key, sets);
  if (choices.empty()) {
    const std::string range = range_phrase(key.rule.range);
    return cat(type_phrase(key.rule.type), range.empty() ? "" : ", ", range);
  }
  for (std::string& choice : choices) {
    choice = cat("`\"", choice, "\"`");
  }
  return cat(choices.size() > 1 ? "one of " : "", join(choices, ", "));
}

std::string default_text(const Key<Config>& key) {
  const ConfigValue value = key.get(Config{});
  const bool unset = std::holds_alternative<std::monostate>(value);
  return unset ? cat("unset: ", key.options.unset) : cat("`", value_to_toml(value), "`");
}

std::string key_row(const Key<Config>& key, const std::string& section, const ConfigChoices& sets) {
  const std::string phrase = needs_phrase(key, sets);
  const std::string needs = phrase.empty() ? "" : cat(" Needs ", phrase, ".");
  return cat("| `", key.name.substr(section.size() + 1), "` | ", type_text(key, sets), " | ",
             default_text(key), " | ", key.options.doc, needs, " |\n");
}

}  // namespace

std::string config_reference_markdown(const ConfigChoices& sets) {
  std::string out =
      "# Config reference\n\n"
      "A run is one TOML file; any key can be overridden on the command line as\n"
      "`--section.key=value` (a list as `a,b`). This page is generated from the schema.\n\n"
      "A key that is unknown or has the wrong type is an error. So is a key that is changed from "
      "its\n"
      "default in a run where it has no effect. Whole numbers are at most 2147483647 unless their\n"
      "row says otherwise.\n";
  for (const Section& section : config_sections()) {
    out += cat("\n## ", section.name, "\n\n", section.doc,
               "\n\n| key | value | default | meaning |\n|---|---|---|---|\n");
    for (const Key<Config>& key : config_keys()) {
      if (key.name.compare(0, section.name.size() + 1, section.name + ".") == 0) {
        out += key_row(key, section.name, sets);
      }
    }
  }
  return out;
}

}  // namespace weft
