// Which elements of every parameter a rank stores, and where; and which of them it writes to a
// checkpoint. Initial values, loading, saving and comparing use this one map. A placement works in
// two stages: S shards a dim of every named slice of a parameter and leaves one box per slice on a
// rank; F shards the flat of these boxes evenly, together with the other members of its bucket,
// over one axis or over several that are folded into one ("dp_shard+tp").
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/type.h"
#include "plan/plan.h"

namespace weft {

// A parameter as files name it: slices are row counts that cover dim 0 in order.
struct ParamShape {
  std::string name;
  Shape shape;
  std::vector<int64_t> slices;
};

// The elements whose index along dim d lies in [begin[d], begin[d] + size[d]).
struct Box {
  Shape begin;
  Shape size;
  bool operator==(const Box&) const = default;
};

// Elements that are contiguous in the parameter (row-major) and in the tensor that stores them.
struct ElementRun {
  int64_t first = 0;  // in the parameter
  int64_t elements = 0;
  int64_t at = 0;  // in the rank's tensor
  bool operator==(const ElementRun&) const = default;
};

// The boxes that the S entries of a placement leave on a rank, one per slice; a box may be empty.
// Dims that do not divide evenly are shared out in shards of the ceiling.
std::vector<Box> local_boxes(const ParamShape& param, const Placement& placement, const Mesh& mesh,
                             int64_t rank);

// The runs of elements [begin, end) of the boxes, one box after the other. The first of them is
// stored at `at`.
std::vector<ElementRun> runs_of(const Shape& shape, std::span<const Box> boxes, int64_t begin,
                                int64_t end, int64_t at);

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

  void place(const Plan& plan, const Binding& binding, int64_t rank,
             const std::map<std::string, size_t>& index);
  void share_writing(const Plan& plan, int64_t rank);

  std::vector<ParamShape> params_;
  std::vector<Place> places_;  // by parameter
};

}  // namespace weft
