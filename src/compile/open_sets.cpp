#include "compile/open_sets.h"

#include "model/model.h"
#include "runtime/device.h"

namespace weft {

const OpenSets& open_sets() {
  static const OpenSets sets = [] {
    OpenSet models{.key = "model.name", .members = {}};
    for (const ModelDef* model : all_models()) {
      models.members.push_back({model->name, model->own_keys});
    }
    OpenSet backends{.key = "device.backend", .members = {}};
    for (const Backend& backend : all_backends()) {
      backends.members.push_back({backend.name, backend.own_keys});
    }
    return OpenSets{models, backends};
  }();
  return sets;
}

}  // namespace weft
