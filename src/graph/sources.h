// What a source is bound to, and searches for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace weft {

// The name of an input or a parameter.
const std::string& source_name(const Node& node);

// The names of the dims of an input or a parameter; empty if they have none.
const std::vector<std::string>& dim_names(const Node& node);

// Owner and role of a state.
const StateKey& state_key(const Node& node);

// Whether the parameter is trained: none of its readers takes it as a constant.
bool is_trained(const Node& param);

// Names of the parameters that a bucket stores, or of a single parameter.
std::vector<std::string> stored_params(const Node& node);

// The value of the input or state, or nullptr if the graph does not have it.
Value* find_input(const Graph& graph, std::string_view name);
Value* find_state(const Graph& graph, const StateKey& key);

// Whether the value is a state in that role.
bool is_state(const Value& value, StateRole role);

}  // namespace weft
