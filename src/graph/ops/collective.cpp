// Collectives over the ranks of one mesh axis or joint axis, and the wait for started ones. Unlike
// other ops they change placements, so infer computes the placements of results. Flat tensors shard
// parameters and gradients, and a bucket is one variadic node; the attribute `dim` shards one
// tensor along a dim instead.
#include <algorithm>

#include "graph/collective.h"
#include "graph/flat.h"
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"
#include "graph/ops/start_op.h"

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

// Whether the entry is over the attribute `axis`, or over one of the axes of a joint one.
bool is_over_axis(const Call& call, const AxisPlacement& entry) {
  const std::string& axis = call.text_attr("axis");
  const std::vector<std::string_view> joint = joint_axes(axis);
  return entry.axis == axis || std::find(joint.begin(), joint.end(), entry.axis) != joint.end();
}

// The entries for the attribute `axis`: one of this kind for each axis of a joint one, in order.
Placement entries_over_axis(const Call& call, PlacementKind kind, int64_t dim = 0) {
  Placement entries;
  for (const std::string_view axis : joint_axes(call.text_attr("axis"))) {
    entries.push_back({kind, std::string(axis), dim});
  }
  return entries;
}

// Throws unless operand `i` has these entries over the attribute `axis`. Flat storage may also have
// one entry of the joint name.
void require_entries(const Call& call, size_t i, const Placement& expected) {
  Placement found;
  for (const AxisPlacement& entry : call.type(i).placement) {
    if (is_over_axis(call, entry)) found.push_back(entry);
  }
  const Placement one = {{expected.front().kind, call.text_attr("axis")}};
  const auto same = [](const AxisPlacement& a, const AxisPlacement& b) {
    const bool sharded = a.kind == PlacementKind::Sharded;  // else the dim means nothing
    return a.kind == b.kind && a.axis == b.axis && (!sharded || a.dim == b.dim);
  };
  const auto is = [&](const Placement& entries) {
    return std::equal(found.begin(), found.end(), entries.begin(), entries.end(), same);
  };
  if (is(expected) || (one[0].kind == PlacementKind::Flat && is(one))) return;
  const std::string text = to_string(TensorType{DType::F32, {}, expected});
  call.refuse(cat(operand_name(call, i), " is ", to_string(call.type(i)), ", expected ",
                  text.substr(text.find('@'))));
}

// Throws unless operand `i` has a placement of this kind over the attribute `axis`.
void require_placement(const Call& call, size_t i, PlacementKind kind) {
  require_entries(call, i, entries_over_axis(call, kind));
}

// The placement with its entries for the attribute `axis` changed to `kind`.
Placement with_kind(const Call& call, Placement placement, PlacementKind kind, int64_t dim = 0) {
  for (AxisPlacement& entry : placement) {
    if (!is_over_axis(call, entry)) continue;
    entry.kind = kind;
    entry.dim = dim;
  }
  return placement;
}

Placement without_axis(const Call& call, Placement placement) {
  std::erase_if(placement, [&](const AxisPlacement& entry) { return is_over_axis(call, entry); });
  return placement;
}

// The attribute `attr`, a dim of the operand, none of whose shards over other axes lie inside those
// over the attribute `axis`: the ranges of these would not be contiguous.
int64_t require_dim(const Call& call, size_t i, std::string_view attr = "dim") {
  const int64_t dim = call.int_attr(attr);
  const TensorType& type = call.type(i);
  call.require(dim >= 0 && dim < std::ssize(type.shape), attr, " is ", dim, ", expected one of ",
               type);
  bool inside = false;
  for (const AxisPlacement& entry : type.placement) {
    inside |= is_over_axis(call, entry);
    call.require(entry.kind != PlacementKind::Flat, operand_name(call, i), " is ", type,
                 ", expected no flat tensor with ", attr);
    call.require(!inside || is_over_axis(call, entry) || entry.kind != PlacementKind::Sharded ||
                     entry.dim != dim,
                 operand_name(call, i), " is ", type, ", expected no shards of dim ", dim,
                 " after those over ", call.text_attr("axis"));
  }
  return dim;
}

// Members of a flat tensor may be sharded along different dims; the flat tensor itself consists of
// `shards` parts, each of which holds one shard of every member.
Placement in_flat(Placement placement) {
  for (AxisPlacement& entry : placement) entry.dim = 0;
  return placement;
}

// Throws unless the attribute `shards` counts those of the tensor.
void require_shards(const Call& call, const TensorType& type) {
  const bool sharded =
      std::any_of(type.placement.begin(), type.placement.end(),
                  [](const AxisPlacement& entry) { return entry.kind == PlacementKind::Sharded; });
  call.require(sharded == (call.int_attr("shards") > 1), "shards is ", call.int_attr("shards"),
               ", expected the number of shards of ", type);
}

// The placement of a member of x that is itself sharded as `member` says, once x is gathered.
Placement gathered_placement(const Call& call, const TensorType& member) {
  Placement placement = without_axis(call, call.type(0).placement);
  size_t sharded = 0;
  for (AxisPlacement& entry : placement) {
    if (entry.kind != PlacementKind::Sharded) continue;
    const AxisPlacement* of_member = placement_over(member, entry.axis);
    call.require(of_member != nullptr, "x is ", call.type(0), ", expected shards of ", member);
    entry = *of_member;
    ++sharded;
  }
  call.require(sharded == member.placement.size(), "x is ", call.type(0), ", expected shards of ",
               member);
  return placement;
}

// The shapes of one of `shards` shards of each tensor.
std::vector<Shape> shard_shapes(const Call& call, const Types& types) {
  const int64_t shards = call.int_attr("shards");
  std::vector<Shape> shapes;
  for (const TensorType& type : types) {
    shapes.push_back(type.shape);
    for (const AxisPlacement& entry : type.placement) {
      if (entry.kind != PlacementKind::Sharded || shards == 1) continue;
      int64_t& size = shapes.back().at(static_cast<size_t>(entry.dim));
      size = (size + shards - 1) / shards;
    }
  }
  return shapes;
}

Types infer_gather_dim(const Call& call) {
  call.require(call.operands.size() == 1, "found ", call.operands.size(),
               " operands, expected one with dim");
  call.require(call.texts_attr("types").empty(), "types is given, expected none with dim");
  const int64_t dim = require_dim(call, 0);
  require_entries(call, 0, entries_over_axis(call, PlacementKind::Sharded, dim));
  TensorType full = call.type(0);
  full.placement = without_axis(call, full.placement);
  return {full};
}

Types infer_all_gather(const Call& call) {
  require_operands(call);
  if (call.int_attr("dim") >= 0) return infer_gather_dim(call);
  require_placement(call, 0, PlacementKind::Flat);
  const TensorType& x = call.type(0);
  Types results;
  for (const std::string& text : call.texts_attr("types")) {
    TensorType type = parse_type(text);
    call.require(!is_partial(type) && !is_flat(type) && !type.future, "types has \"", text,
                 "\", expected a dtype and a shape");
    call.require(type.dtype == x.dtype || (is_floating(type.dtype) && is_floating(x.dtype)),
                 "types has \"", text, "\", expected a dtype that ", dtype_name(x.dtype),
                 " converts to");
    require_shards(call, type);
    type.placement = gathered_placement(call, type);
    results.push_back(std::move(type));
  }
  call.require(!results.empty(), "types is empty, expected one or more");
  const int64_t size = call.int_attr("shards") * flat_size(shard_shapes(call, results));
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
  return dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
}

Types infer_scatter_dim(const Call& call) {
  call.require(call.operands.size() == 1, "found ", call.operands.size(),
               " operands, expected one with dim");
  const int64_t dim = require_dim(call, 0);
  require_placement(call, 0, PlacementKind::Partial);
  TensorType shard = call.type(0);
  call.require(is_summed(shard.dtype), "g is ", shard, ", expected f32, bf16 or f16");
  shard.dtype = out_dtype(call, shard.dtype);
  shard.placement = with_kind(call, shard.placement, PlacementKind::Sharded, dim);
  return {shard};
}

Types infer_to_partial(const Call& call) {
  require_floating(call, "x");
  require_type(call, "coordinate", DType::I32, {});
  TensorType partial = call.type(0);
  for (AxisPlacement& entry : entries_over_axis(call, PlacementKind::Partial)) {
    partial.placement.push_back(std::move(entry));
  }
  return {partial};
}

Types infer_take_shard(const Call& call) {
  const int64_t dim = require_dim(call, 0);
  require_type(call, "coordinate", DType::I32, {});
  TensorType shard = call.type(0);
  for (const AxisPlacement& entry : shard.placement) {
    call.require(!is_over_axis(call, entry), "x is ", shard, ", expected no placement over ",
                 call.text_attr("axis"));
  }
  for (AxisPlacement& entry : entries_over_axis(call, PlacementKind::Sharded, dim)) {
    shard.placement.push_back(std::move(entry));
  }
  return {shard};
}

Types infer_reduce_scatter(const Call& call) {
  require_operands(call);
  if (call.int_attr("dim") >= 0) return infer_scatter_dim(call);
  const Placement& first = call.type(0).placement;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const TensorType& g = call.type(i);
    require_placement(call, i, PlacementKind::Partial);
    call.require(is_summed(g.dtype) && g.dtype == call.type(0).dtype, "g is ", g,
                 ", expected f32, bf16 or f16, one dtype for all operands");
    call.require(in_flat(g.placement) == in_flat(first), "g is ", g, ", expected the placement of ",
                 call.type(0));
    call.require(!is_flat(g), "g is ", g, ", expected a tensor");
    require_shards(call, g);
  }
  return {{out_dtype(call, call.type(0).dtype),
           {call.int_attr("shards") * flat_size(shard_shapes(call, call.operands))},
           with_kind(call, in_flat(first), PlacementKind::Flat)}};
}

Types infer_all_reduce(const Call& call) {
  require_operands(call);
  Types results = call.operands;
  for (size_t i = 0; i < results.size(); ++i) {
    require_placement(call, i, PlacementKind::Partial);
    const TensorType& x = call.type(i);
    call.require((is_summed(x.dtype) || x.dtype == DType::I64) && x.dtype == call.type(0).dtype,
                 "x is ", x, ", expected f32, bf16, f16 or i64, one dtype for all operands");
    results[i].placement = without_axis(call, x.placement);
  }
  return results;
}

// The last operand of a bounded all_to_all: offsets of rows.
void require_bounds(const Call& call) {
  const TensorType& bounds = call.operands.back();
  const TensorType& x = call.type(0);
  const bool fits = call.operands.size() > 1 && bounds.dtype == DType::I32 &&
                    bounds.shape.size() == 3 && x.shape.size() >= 3 &&
                    std::equal(x.shape.begin(), x.shape.begin() + 2, bounds.shape.begin()) &&
                    bounds.placement == x.placement;
  call.require(fits, "the last x is ", bounds, ", expected the offsets of rows ", x);
}

Types infer_all_to_all(const Call& call) {
  require_operands(call);
  Types results = call.operands;
  if (call.bool_attr("bounded")) {
    require_bounds(call);
    results.pop_back();
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const int64_t from = require_dim(call, i, "from");
    const int64_t to = require_dim(call, i, "to");
    call.require(from != to, "from and to are both ", from, ", expected two dims");
    require_entries(call, i, entries_over_axis(call, PlacementKind::Sharded, from));
    results[i].placement = with_kind(call, results[i].placement, PlacementKind::Sharded, to);
  }
  return results;
}

Types infer_shift(const Call& call) {
  require_operands(call);
  const TensorType& x = call.type(0);
  for (const std::string_view axis : joint_axes(call.text_attr("axis"))) {
    const AxisPlacement* entry = placement_over(x, axis);
    call.require(entry != nullptr && entry->kind == PlacementKind::Sharded, "x is ", x,
                 ", expected shards over ", axis);
  }
  return {x};
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

constexpr OpTraits kCollective{.differentiable = false, .collective = true, .places = true};

constexpr CollectiveInfo kGathers{
    .full = CollectiveSide::Results,
    .layout = CollectiveLayout::ByDim,
    .latency = &Link::gather_latency,
    .bandwidth = &Link::gather_bandwidth,
    .stream = StreamId::Gather,
    .prefetchable = true,
    .result_dim = "dim",
};

constexpr CollectiveInfo kScatters{
    .reduces = true,
    .layout = CollectiveLayout::ByDim,
    .latency = &Link::scatter_latency,
    .bandwidth = &Link::scatter_bandwidth,
    .stream = StreamId::Reduce,
    .operand_dim = "dim",
};

// A sum is sent like a reduce_scatter followed by an all_gather.
constexpr CollectiveInfo kSums{
    .sharded = false,
    .reduces = true,
    .layout = CollectiveLayout::Flat,
    .sent = CollectiveSent::SharesTwice,
    .latency = &Link::sum_latency,
    .bandwidth = &Link::sum_bandwidth,
    .stream = StreamId::Reduce,
};

// Only moves data, as a gather does.
constexpr CollectiveInfo kRedistributes{
    .latency = &Link::gather_latency,
    .bandwidth = &Link::gather_bandwidth,
    .stream = StreamId::Activation,
    .operand_dim = "to",
    .result_dim = "from",
};

constexpr CollectiveInfo kShifts{
    .sent = CollectiveSent::All,
    .latency = &Link::gather_latency,
    .bandwidth = &Link::gather_bandwidth,
    .stream = StreamId::Activation,
};

}  // namespace

constexpr OpDef kAllGather{
    .signature =
        "all_gather(x, into...; axis: text, types = [texts], shards = 1, dim = -1) -> y...",
    .doc =
        "Gathers a flat tensor x @F(axis) in full on every rank of the axis. There is one result "
        "for each entry of `types` (\"bf16[768,256]\"), in flat order; results overwrite `into` if "
        "that is given. Each rank casts its shard to the dtype of the results before sending it. "
        "Members that are themselves sharded over another axis, in `shards` shards, have their "
        "placement in `types`. With `dim`, gathers x @S(dim:axis) into the full tensor y, without "
        "`types` and `into`.",
    .traits = kCollective,
    .overwrites = "y<-into",
    .collective = &kGathers,
    .infer = infer_all_gather,
    .cost = cost_of_results,
};

constexpr OpDef kReduceScatter{
    .signature = "reduce_scatter(g...; axis: text, out = \"\", shards = 1, dim = -1) -> y",
    .doc =
        "The sum of g @P(axis) over the ranks of the axis, as one flat tensor @F(axis) that holds "
        "the operands in order, with zero padding. Sums are computed in f32 and rounded once, to "
        "the dtype named by `out`; if that is empty, to the dtype of g. With `dim`, the sum of one "
        "g has its shape and is @S(dim:axis).",
    .traits = kCollective,
    .collective = &kScatters,
    .infer = infer_reduce_scatter,
    .cost = cost_of_operands,
};

constexpr OpDef kAllReduce{
    .signature = "all_reduce(x...; axis: text) -> y...",
    .doc =
        "The sum of each x @P(axis) over the ranks of the axis, on every rank, in place. Sums are "
        "computed in f32 and rounded once; i64 sums are exact.",
    .traits = kCollective,
    .overwrites = "y<-x",
    .collective = &kSums,
    .infer = infer_all_reduce,
    .cost = cost_of_both,
};

constexpr OpDef kAllToAll{
    .signature = "all_to_all(x...; axis: text, from: int, to: int, bounded = false) -> y...",
    .doc =
        "Moves the shards of each x @S(from:axis) to those of y @S(to:axis): every rank sends each "
        "rank of the axis its range along `to`. Where that dim does not divide, the last shards "
        "are padded with zeros. If it is `bounded`, the last x is not moved: it has the offsets "
        "[sources,parts,experts/parts+1] of rows, and of the floating x [sources,parts,slots,...] "
        "only rows below the last offset need to be moved; the others of y are undefined.",
    .traits = kCollective,
    .collective = &kRedistributes,
    .infer = infer_all_to_all,
    .cost = cost_of_results,
};

constexpr OpDef kShift{
    .signature = "shift(x; axis: text, steps = 1) -> y",
    .doc =
        "Every rank receives the shard of x @S(dim:axis) of the rank `steps` before it along the "
        "axis, the first ranks those of the last ones. y has the placement of x: it is x with its "
        "shards rotated along `dim`, padding included, so only an op that knows the rotation reads "
        "it together with other tensors.",
    .traits = kCollective,
    .collective = &kShifts,
    .infer = infer_shift,
    .cost = cost_of_results,
};

constinit const OpDef kAllGatherStart = start_op<kAllGather>();
constinit const OpDef kReduceScatterStart = start_op<kReduceScatter>();
constinit const OpDef kAllReduceStart = start_op<kAllReduce>();
constinit const OpDef kAllToAllStart = start_op<kAllToAll>();
constinit const OpDef kShiftStart = start_op<kShift>();

constinit const OpDef kWait{
    .signature = "wait(f...) -> y...",
    .doc = "Waits for a started collective and returns the tensors of its futures f, in place.",
    .traits = kCollective,
    .overwrites = "y<-f",
    .infer = infer_wait,
    .cost = [](const Call&) { return Cost{.bytes = 0}; },
};

constinit const OpDef kToPartial{
    .signature = "to_partial(x, coordinate; axis: text) -> y",
    .doc =
        "A value that is full over the axis as a partial sum: x on rank 0 of the axis, zeros on "
        "the others.",
    .traits = {.differentiable = false, .linear = true, .places = true},
    .infer = infer_to_partial,
};

constinit const OpDef kTakeShard{
    .signature = "take_shard(x, coordinate; axis: text, dim: int) -> y",
    .doc =
        "What this rank holds of a tensor @S(dim:axis): number `coordinate` of equal ranges of x "
        "along `dim`, the last of which may be padded with zeros; over cp two chunks. x is "
        "replicated over the axis, so nothing is sent.",
    .traits = {.differentiable = false, .linear = true, .places = true},
    .infer = infer_take_shard,
    // Only the range is read.
    .cost =
        [](const Call& call) {
          return Cost{.bytes = 2 * static_cast<double>(call.results.at(0).bytes())};
        },
};

}  // namespace weft
