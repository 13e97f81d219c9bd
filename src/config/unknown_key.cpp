// The message for a key that does not exist: its feature is planned, the nearest key, or where the
// keys are listed.
#include "config/schema.h"

namespace weft {
namespace {

// Keys as torchtitan names them, matched by prefix: of the full key, or of the part after the
// section for entries without a dot. Without this list the message would suggest a key with a
// similar name but another meaning.
struct Planned {
  std::string_view start;
  std::string_view feature;
};
constexpr Planned kPlanned[] = {
    {"pipeline_parallel", "pipeline parallelism"},
    {"module_fqns_per_model_part", "pipeline parallelism"},
    {"expert_tensor_parallel", "tensor parallelism of experts"},
    {"enable_cpu_offload", "offloading to host memory"},
    {"cpu_offload", "offloading to host memory"},
    {"activation_offload", "offloading to host memory"},
    {"float8", "float8"},
    {"quantize.", "float8"},
    {"mx.", "float8"},
    {"model.converters", "float8"},
    {"profiling", "a recorded timeline"},
};

std::optional<std::string_view> planned_feature(std::string_view key, std::string_view last) {
  for (const Planned& planned : kPlanned) {
    const bool exact = planned.start.find('.') != std::string_view::npos;
    if (key.starts_with(planned.start) || (!exact && last.starts_with(planned.start))) {
      return planned.feature;
    }
  }
  return std::nullopt;
}

}  // namespace

void throw_unknown_key(const Entry& entry, const std::vector<std::string>& known) {
  USER_CHECK(!is_config_section(entry.key), entry.subject, " is ", entry.found,
             ", expected a section; write [", entry.key, "] above its keys");
  const std::string last = entry.key.substr(entry.key.rfind('.') + 1);
  const std::optional<std::string_view> planned = planned_feature(entry.key, last);
  USER_CHECK(!planned, entry.subject, " needs ", *planned,
             ", which Weft does not have yet; remove the key");
  // A key under the wrong section, or under none, is closer to a key's name than to its path.
  std::optional<std::string> guess;
  for (const std::string& name : known) {
    if (name.substr(name.rfind('.') + 1) == last) {
      guess = name;
      break;
    }
  }
  if (!guess) guess = nearest(entry.key, known);
  const std::string hint =
      guess ? cat("; did you mean \"", *guess, "\"?") : "; docs/config.md lists every key";
  throw UserError(ExitCode::Config, cat(entry.where, ": unknown key \"", entry.shown, "\"", hint));
}

}  // namespace weft
