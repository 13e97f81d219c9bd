// Chunks of a batch along time, for work that is done chunk by chunk. Chunks keep all samples, so
// the batch stays sharded over ranks as before. Columns of a matmul that computes several values.
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"

namespace weft {
namespace {

// "bsuv" for four dims: any may be sharded.
std::string sharded_alike(const TensorType& type) {
  std::string dims = "bsuvwxyz";
  dims.resize(std::min(dims.size(), type.shape.size()));
  return dims;
}

void require_time(const Call& call, size_t operand) {
  call.require(call.type(operand).shape.size() >= 2, operand_name(call, operand), " is ",
               call.type(operand), ", expected [batch,time,...]");
}

std::vector<TensorType> infer_split_time(const Call& call) {
  require_time(call, 0);
  const int64_t parts = call.int_attr("parts");
  const int64_t index = call.int_attr("index");
  const int64_t shards = call.int_attr("shards");
  TensorType chunk = call.type(0);
  call.require(parts > 0 && shards > 0 && chunk.shape[1] % (parts * shards) == 0, "parts is ",
               parts, " and shards is ", shards, ", expected divisors of the time of x, ",
               chunk.shape[1]);
  call.require(index >= 0 && index < parts, "index is ", index, ", expected 0 to ", parts - 1);
  chunk.shape[1] /= parts;
  return {chunk};
}

std::vector<TensorType> infer_concat_time(const Call& call) {
  call.require(!call.operands.empty(), "no operands, expected one or more");
  require_time(call, 0);
  require_floating(call, 0);
  TensorType full = call.type(0);
  for (size_t i = 1; i < call.operands.size(); ++i) {
    require_type(call, i, full.dtype, full.shape);
  }
  const int64_t shards = call.int_attr("shards");
  call.require(shards > 0 && full.shape[1] % shards == 0, "shards is ", shards,
               ", expected a divisor of the time of x, ", full.shape[1]);
  full.shape[1] *= static_cast<int64_t>(call.operands.size());
  return {full};
}

std::vector<TensorType> infer_split_columns(const Call& call) {
  require_floating(call, "x", 1);
  const TensorType& x = call.type("x");
  int64_t total = 0;
  std::vector<TensorType> parts;
  for (const int64_t width : call.ints_attr("widths")) {
    call.require(width > 0, "a width is ", width, ", expected a positive number");
    total += width;
    parts.push_back({x.dtype, append_dim(leading_dims(x), width), {}});
  }
  call.require(total == row_length(x), "the widths add up to ", total, ", but x is ", x);
  return parts;
}

std::vector<TensorType> infer_concat_columns(const Call& call) {
  call.require(!call.operands.empty(), "no operands, expected one or more");
  require_floating(call, 0, 1);
  TensorType full = call.type(0);
  for (size_t i = 1; i < call.operands.size(); ++i) {
    require_floating(call, i, 1);
    const TensorType& part = call.type(i);
    call.require(part.dtype == full.dtype && leading_dims(part) == leading_dims(full),
                 operand_name(call, i), " is ", part, ", expected rows like those of ",
                 call.type(0));
    full.shape.back() += row_length(part);
  }
  return {full};
}

// "...A, ...B": as many terms as there are parts, none of whose columns are sharded.
std::string column_terms(size_t parts) {
  std::vector<std::string> terms;
  for (size_t i = 0; i < parts; ++i) terms.push_back(cat("...", static_cast<char>('A' + i)));
  return join(terms, ", ");
}

}  // namespace

constinit const OpDef kSplitTime{
    .signature = "split_time(x; index: int, parts: int, shards = 1) -> y",
    .doc =
        "Chunk `index` of `parts` equal chunks of x [batch,time,...] along time. If time is "
        "sharded, that is chunk `index` of every shard; `shards` takes the same tokens of a full "
        "x.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_split_time,
    // Only the chunk is read.
    .cost =
        [](const Call& call) {
          return Cost{.bytes = 2 * static_cast<double>(call.results.at(0).bytes())};
        },
    .sharding_of =
        [](const Call& call) {
          const std::string dims = sharded_alike(call.type(0));
          return cat(dims, " -> ", dims);
        },
    .samples =
        "x: f32[2,6,5]; index=1, parts=3 | x: i32[3,8]; index=0, parts=2 | "
        "x: i32[3,8]; index=1, parts=2, shards=2 | "
        "x: bf16[1,4,3]; index=3, parts=4 | x: f32[3,130,67]; index=1, parts=2",
};

constinit const OpDef kConcatTime{
    .signature = "concat_time(x...; shards = 1) -> y",
    .doc =
        "The concatenation of chunks [batch,time,...] along time. It is the inverse of split_time, "
        "with the same `shards`.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_concat_time,
    .sharding_of =
        [](const Call& call) {
          const std::string dims = sharded_alike(call.type(0));
          return cat(join(std::vector<std::string>(call.operands.size(), dims), ", "), " -> ",
                     dims);
        },
    .samples =
        "x: f32[2,2,5], x: f32[2,2,5], x: f32[2,2,5] | x: f32[3,4,2] | "
        "x: f32[2,4,3], x: f32[2,4,3]; shards=2 | "
        "x: bf16[1,1,3], x: bf16[1,1,3] | x: f32[3,65,67], x: f32[3,65,67]",
};

constinit const OpDef kSplitColumns{
    .signature = "split_columns(x; widths: ints) -> y...",
    .doc = "The columns of x [...,n] as several tensors with these widths.",
    .traits = {.linear = true},
    .infer = infer_split_columns,
    .vjp = [](Vjp& v) -> std::vector<Value*> {
      std::vector<Value*> grads;
      for (size_t i = 0; i < v.node().results.size(); ++i) {
        CHECK(v.grad(i) != nullptr, "split_columns: no gradient of result ", i);
        grads.push_back(v.grad(i));
      }
      return {v.add(kConcatColumns, grads, {}, "x")->result()};
    },
    .sharding_of =
        [](const Call& call) {
          return cat("...Z -> ", column_terms(call.ints_attr("widths").size()));
        },
    .samples =
        "x: f32[2,3,9]; widths=[4, 3, 2] | x: bf16[5,6]; widths=[5, 1] | x: f32[67,515]; "
        "widths=[256, 259]",
};

constinit const OpDef kConcatColumns{
    .signature = "concat_columns(x...) -> y",
    .doc = "The columns of several tensors next to each other. It is the inverse of split_columns.",
    .traits = {.differentiable = false, .linear = true},
    .infer = infer_concat_columns,
    .sharding_of =
        [](const Call& call) { return cat(column_terms(call.operands.size()), " -> ...Z"); },
    .samples =
        "x: f32[2,3,4], x: f32[2,3,3], x: f32[2,3,2] | x: bf16[5,5], x: bf16[5,1] | "
        "x: f32[67,256], x: f32[67,259]",
};

constinit const OpDef kAddInPlace{
    .signature = "add_in_place(acc, g) -> sum",
    .doc =
        "sum = acc + g. Contributions are added as they are computed, so that they need not be in "
        "memory at the same time.",
    .traits = {.in_place = true, .differentiable = false, .linear = true},
    .infer = [](const Call& call) -> std::vector<TensorType> {
      require_floating(call, "acc");
      const TensorType& acc = call.type("acc");
      require_type(call, "g", acc.dtype, acc.shape);
      return {acc};
    },
    .cost = [](const Call& call) { return per_element(call, 1); },
    .sharding = "..., ... -> ...",
    .samples =
        "acc: f32[3,7], g: f32[3,7] | acc: bf16[2,5], g: bf16[2,5] | "
        "acc: f32[41,1032], g: f32[41,1032]",
};

}  // namespace weft
