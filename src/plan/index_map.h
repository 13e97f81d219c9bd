// Which elements of every parameter a rank stores, and where; and which of them it writes to a
// checkpoint. Initial values, loading, saving and comparing use this one map. A placement works in
// two stages: S shards a dim, each part of a packed one by itself, and leaves a local tensor; F
// shards the flat of local tensors evenly, together with the other members of its bucket, over one
// axis or over several that are folded into one ("dp_shard+tp").
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/type.h"
#include "plan/plan.h"

namespace weft {

// A parameter and the parts of its packed dims: none for a dim that is not packed.
struct ParamShape {
  std::string name;
  Shape shape;
  std::vector<std::vector<int64_t>> parts;  // by dim; may be empty
};

// Elements that are contiguous in the parameter (row-major) and in the tensor that stores them.
struct ElementRun {
  int64_t first = 0;  // in the parameter
  int64_t elements = 0;
  int64_t at = 0;  // in the rank's tensor
  bool operator==(const ElementRun&) const = default;
};

// The elements of the local tensor that the S entries of a placement leave on a rank, in the order
// of that tensor. Dims that do not divide evenly have shards of the ceiling; the padding of the
// last ones belongs to no element.
std::vector<ElementRun> local_runs(const ParamShape& param, const Placement& placement,
                                   const Mesh& mesh, int64_t rank);

// The axes over which the elements of a parameter's tensor are distributed, as a joint axis: those
// along which its members are sharded, and those of F; empty if every rank has all of it.
std::string distributing_axis(const Binding& binding, const Mesh& mesh);

// What a rank stores of a parameter, which is a member of the binding.
std::vector<ElementRun> stored_runs(const Plan& plan, const Binding& binding,
                                    const ParamShape& param, int64_t rank);

class IndexMap {
 public:
  // `params` in any order; the plan must store all of them.
  IndexMap(const Plan& plan, std::vector<ParamShape> params, int64_t rank);

  size_t size() const { return params_.size(); }
  const ParamShape& param(size_t i) const { return params_.at(i); }
  // The tensor that stores the parameter on this rank, alone or with others in a bucket.
  const Binding& binding(size_t param) const { return *places_.at(param).binding; }
  // What this rank stores of the parameter.
  std::span<const ElementRun> held(size_t param) const { return places_.at(param).held; }
  // What this rank writes to a checkpoint: every element of a parameter has one writer, and ranks
  // with the same elements share the work evenly.
  std::span<const ElementRun> written(size_t param) const { return places_.at(param).written; }

 private:
  struct Place {
    const Binding* binding = nullptr;
    std::vector<ElementRun> held;
    std::vector<ElementRun> written;
  };

  void share_writing(const Plan& plan, int64_t rank);

  std::vector<ParamShape> params_;
  std::vector<Place> places_;  // by parameter
};

}  // namespace weft
