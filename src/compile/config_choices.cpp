#include "compile/config_choices.h"

#include "model/model.h"
#include "runtime/device.h"

namespace weft {

const ConfigChoices& config_choices() {
  static const ConfigChoices sets = [] {
    Choices models{.key = "model.name", .members = {}};
    for (const ModelDef* model : all_models()) {
      models.members.push_back({model->name, model->own_keys});
    }
    Choices backends{.key = "device.backend", .members = {}};
    for (const Backend& backend : all_backends()) {
      backends.members.push_back({backend.name, backend.own_keys});
    }
    return ConfigChoices{models, backends};
  }();
  return sets;
}

}  // namespace weft
