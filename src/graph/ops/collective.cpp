// Collectives over the ranks of one mesh axis, and the wait for started ones. Unlike other ops they
// change placements, so infer computes the placements of results. A bucket is one variadic node.
#include "graph/flat.h"
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

using Types = std::vector<TensorType>;

void require_operands(const Call& call) {
  call.require(!call.operands.empty(), "no operands, expected one or more");
  for (size_t i = 0; i < call.operands.size(); ++i) {
    call.require(!call.type(i).future, operand_name(call, i), " is ", call.type(i),
                 ", expected a tensor; wait for it first");
  }
}

// Throws unless operand `i` has a placement of this kind over the attribute `axis`.
void require_placement(const Call& call, size_t i, PlacementKind kind) {
  const std::string& axis = call.text_attr("axis");
  const AxisPlacement* found = placement_over(call.type(i), axis);
  call.require(found != nullptr && found->kind == kind, operand_name(call, i), " is ", call.type(i),
               ", expected @", kind == PlacementKind::Flat ? "F" : "P", "(", axis, ")");
}

// The placement with its entry for the attribute `axis` changed to `kind`.
Placement with_kind(const Call& call, Placement placement, PlacementKind kind) {
  for (AxisPlacement& entry : placement) {
    if (entry.axis == call.text_attr("axis")) entry.kind = kind;
  }
  return placement;
}

Placement without_axis(const Call& call, Placement placement) {
  std::erase_if(placement,
                [&](const AxisPlacement& entry) { return entry.axis == call.text_attr("axis"); });
  return placement;
}

std::vector<Shape> shapes_of(const Types& types) {
  std::vector<Shape> shapes;
  for (const TensorType& type : types) shapes.push_back(type.shape);
  return shapes;
}

Types infer_all_gather(const Call& call) {
  require_operands(call);
  require_placement(call, 0, PlacementKind::Flat);
  const TensorType& x = call.type(0);
  Types results;
  for (const std::string& text : call.texts_attr("types")) {
    TensorType type = parse_type(text);
    call.require(type.placement.empty() && !type.future, "types has \"", text,
                 "\", expected a dtype and a shape");
    call.require(type.dtype == x.dtype || (is_floating(type.dtype) && is_floating(x.dtype)),
                 "types has \"", text, "\", expected a dtype that ", dtype_name(x.dtype),
                 " converts to");
    type.placement = without_axis(call, x.placement);
    results.push_back(std::move(type));
  }
  call.require(!results.empty(), "types is empty, expected one or more");
  const int64_t size = flat_size(shapes_of(results));
  call.require(x.shape == Shape{size}, "x is ", x, ", expected [", size,
               "], the flat size of its members");
  call.require(call.operands.size() == 1 || call.operands.size() == results.size() + 1, "found ",
               call.operands.size() - 1, " tensors to overwrite, expected none or ",
               results.size());
  for (size_t i = 1; i < call.operands.size(); ++i) {
    call.require(call.type(i) == results[i - 1], "into is ", call.type(i), ", expected ",
                 results[i - 1]);
  }
  return results;
}

// Dtypes in which floating-point sums over ranks are sent.
bool is_summed(DType dtype) {
  return dtype == DType::F32 || dtype == DType::BF16;
}

Types infer_reduce_scatter(const Call& call) {
  require_operands(call);
  const Placement& first = call.type(0).placement;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const TensorType& g = call.type(i);
    require_placement(call, i, PlacementKind::Partial);
    call.require(is_summed(g.dtype) && g.dtype == call.type(0).dtype, "g is ", g,
                 ", expected f32 or bf16, one dtype for all operands");
    call.require(g.placement == first, "g is ", g, ", expected the placement of ", call.type(0));
    for (const AxisPlacement& entry : g.placement) {
      call.require(entry.kind == PlacementKind::Partial, "g is ", g, ", expected @P(axis) alone");
    }
  }
  return {{out_dtype(call, call.type(0).dtype),
           {flat_size(shapes_of(call.operands))},
           with_kind(call, first, PlacementKind::Flat)}};
}

Types infer_all_reduce(const Call& call) {
  require_operands(call);
  Types results = call.operands;
  for (size_t i = 0; i < results.size(); ++i) {
    require_placement(call, i, PlacementKind::Partial);
    const TensorType& x = call.type(i);
    call.require((is_summed(x.dtype) || x.dtype == DType::I64) && x.dtype == call.type(0).dtype,
                 "x is ", x, ", expected f32, bf16 or i64, one dtype for all operands");
    results[i].placement = without_axis(call, x.placement);
  }
  return results;
}

Types as_futures(Types types) {
  for (TensorType& type : types) type.future = true;
  return types;
}

Types infer_wait(const Call& call) {
  call.require(!call.operands.empty(), "no operands, expected one or more");
  Types results = call.operands;
  for (TensorType& type : results) {
    call.require(type.future, "f is ", type, ", expected a future");
    type.future = false;
  }
  return results;
}

double bytes_of(const Types& types) {
  double bytes = 0;
  for (const TensorType& type : types) bytes += static_cast<double>(type.bytes());
  return bytes;
}

Cost cost_of_results(const Call& call) {
  return {.bytes = bytes_of(call.results)};
}

double elements_of(const Types& types) {
  double elements = 0;
  for (const TensorType& type : types) elements += static_cast<double>(type.elements());
  return elements;
}

Cost cost_of_operands(const Call& call) {
  return {.flops = elements_of(call.operands), .bytes = bytes_of(call.operands)};
}

// Counted as a reduce_scatter followed by an all_gather.
Cost cost_of_both(const Call& call) {
  return {.flops = elements_of(call.operands), .bytes = 2 * bytes_of(call.operands)};
}

constexpr OpTraits kCollective{.differentiable = false, .collective = true};

}  // namespace

constinit const OpDef kAllGather{
    .signature = "all_gather(x, into...; axis: text, types: texts) -> y...",
    .doc =
        "Gathers a flat tensor x @F(axis) in full on every rank of the axis. There is one result "
        "for each entry of `types` (\"bf16[768,256]\"), in flat order; results overwrite `into` if "
        "that is given. Each rank casts its shard to the dtype of the results before sending it.",
    .traits = kCollective,
    .overwrites = "y<-into",
    .infer = infer_all_gather,
    .cost = cost_of_results,
};

constinit const OpDef kReduceScatter{
    .signature = "reduce_scatter(g...; axis: text, out = \"\") -> y",
    .doc =
        "The sum of g @P(axis) over the ranks of the axis, as one flat tensor @F(axis) that holds "
        "the operands in order, with zero padding. Sums are computed in f32 and rounded once, to "
        "the dtype named by `out`; if that is empty, to the dtype of g.",
    .traits = kCollective,
    .infer = infer_reduce_scatter,
    .cost = cost_of_operands,
};

constinit const OpDef kAllReduce{
    .signature = "all_reduce(x...; axis: text) -> y...",
    .doc =
        "The sum of each x @P(axis) over the ranks of the axis, on every rank, in place. Sums are "
        "computed in f32 and rounded once; i64 sums are exact.",
    .traits = kCollective,
    .overwrites = "y<-x",
    .infer = infer_all_reduce,
    .cost = cost_of_both,
};

constinit const OpDef kAllGatherStart{
    .signature = "all_gather_start(x, into...; axis: text, types: texts) -> y...",
    .doc = "Starts an all_gather; wait returns its results.",
    .traits = kCollective,
    .overwrites = "y<-into",
    .starts = &kAllGather,
    .infer = [](const Call& call) { return as_futures(infer_all_gather(call)); },
    .cost = cost_of_results,
};

constinit const OpDef kReduceScatterStart{
    .signature = "reduce_scatter_start(g...; axis: text, out = \"\") -> y",
    .doc = "Starts a reduce_scatter; wait returns its result.",
    .traits = kCollective,
    .starts = &kReduceScatter,
    .infer = [](const Call& call) { return as_futures(infer_reduce_scatter(call)); },
    .cost = cost_of_operands,
};

constinit const OpDef kAllReduceStart{
    .signature = "all_reduce_start(x...; axis: text) -> y...",
    .doc = "Starts an all_reduce; wait returns its results.",
    .traits = kCollective,
    .overwrites = "y<-x",
    .starts = &kAllReduce,
    .infer = [](const Call& call) { return as_futures(infer_all_reduce(call)); },
    .cost = cost_of_both,
};

constinit const OpDef kWait{
    .signature = "wait(f...) -> y...",
    .doc = "Waits for a started collective and returns the tensors of its futures f, in place.",
    .traits = kCollective,
    .overwrites = "y<-f",
    .infer = infer_wait,
    .cost = [](const Call&) { return Cost{.bytes = 0}; },
};

}  // namespace weft
