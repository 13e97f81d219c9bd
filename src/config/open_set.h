// A key whose values another folder lists: the models of model.name, the backends of
// device.backend. This folder knows none of them; whoever checks a config hands the lists over
// (train/open_sets.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace weft {

struct OpenSet {
  struct Member {
    std::string_view name;
    // Keys that have an effect with the members that list them and with no other.
    std::span<const std::string_view> own_keys = {};
  };
  std::string_view key;  // "model.name"
  std::vector<Member> members;
};

using OpenSets = std::vector<OpenSet>;

}  // namespace weft
