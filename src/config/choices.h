// A key whose values are listed in another folder: the models of model.name, the backends of
// device.backend. This folder knows none of them; callers that check a config pass the lists in
// (compile/config_choices.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace weft {

struct Choices {
  struct Member {
    std::string_view name;
    // Keys that have an effect only with the members that list them.
    std::span<const std::string_view> own_keys = {};
  };
  std::string_view key;  // "model.name"
  std::vector<Member> members;
};

using ConfigChoices = std::vector<Choices>;

}  // namespace weft
