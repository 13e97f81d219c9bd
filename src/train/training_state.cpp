#include "train/training_state.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace weft {

std::string to_json(const TrainingState& state) {
  return nlohmann::ordered_json{{"step", state.step},
                                {"samples", state.samples},
                                {"skipped", state.skipped},
                                {"nonfinite_in_a_row", state.nonfinite_in_a_row},
                                {"validation_due", state.validation_due},
                                {"seed", state.seed},
                                {"ranks", state.ranks},
                                {"mesh", state.mesh},
                                {"tokenizer", state.tokenizer},
                                {"backend", state.backend}}
             .dump(2) +
         "\n";
}

TrainingState parse_training_state(std::string_view text, const std::string& where) {
  const nlohmann::json root = parse_json(text, where);
  TrainingState state{.step = json_int(root, "step", where),
                      .samples = json_int(root, "samples", where),
                      .skipped = json_int(root, "skipped", where),
                      .nonfinite_in_a_row = json_int(root, "nonfinite_in_a_row", where),
                      .validation_due = json_flag(root, "validation_due", where),
                      .seed = json_int(root, "seed", where),
                      .ranks = json_int(root, "ranks", where),
                      .mesh = json_string(root, "mesh", where),
                      .tokenizer = json_string(root, "tokenizer", where),
                      .backend = json_string(root, "backend", where)};
  INPUT_CHECK(state.step >= 0 && state.ranks >= 1, where, ": step ", state.step, " on ",
              state.ranks, " ranks, expected at least 0 and 1");
  return state;
}

std::string mesh_text(const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.all_axes()) axes.push_back(cat(axis.name, "=", axis.size));
  return join(axes, " ");
}

}  // namespace weft
