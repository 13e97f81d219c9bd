// Ops that `fuse` creates from neighbours that read or write the same memory. Each lists the ops it
// replaces, in order, and matches them bit for bit.
#include "graph/ops/ops.h"
#include "graph/ops/shapes.h"
#include "graph/parts.h"

namespace weft {
namespace {

// Names of dims that must not be sharded.
std::string named_dims(const Call& call, size_t count) {
  std::string names = "TUVWXYZ";
  call.require(count <= names.size(), "more dims than a sharding rule can name");
  names.resize(count);
  return names;
}

// The accumulator is not a partial sum, so the contracted dims must not be sharded.
std::string sharding_of_matmul_sum(const Call& call) {
  const std::string_view more = call.op == &kMatmulAccumulate ? ", " : "";
  if (call.bool_attr("ta")) {
    const std::string leading = named_dims(call, call.type("a").shape.size() - 1);
    return cat("mn, ", leading, "m, ", leading, "n", more, " -> mn");
  }
  return cat("...n, ...K, ", call.bool_attr("tb") ? "nK" : "Kn", more, " -> ...n");
}

std::string sharding_of_added_table(const Call& call) {
  const std::string places = named_dims(call, call.type("ids").shape.size());
  return cat("Rc, ", places, ", ", places, "c -> Rc");
}

}  // namespace

constinit const OpDef kMatmulAdd{
    .signature = "matmul_add(acc, a, b; ta = false, tb = false) -> sum",
    .doc = "acc += a b in place: the matmul result is added from its f32 accumulator.",
    .traits = {.effect = true, .differentiable = false, .matmul = true},
    .overwrites = "sum<-acc",
    .parts = "added = matmul(a, b; out=\"f32\"); sum = add_in_place(acc, added)",
    .infer = infer_parts,
    .cost = cost_parts,
    .sharding_of = sharding_of_matmul_sum,
    .samples =
        "acc: f32[5,7], a: f32[2,3,5], b: f32[2,3,7]; ta=true | "
        "acc: f32[6,3], a: bf16[11,6], b: bf16[11,3]; ta=true | "
        "acc: f32[3,7], a: f32[3,5], b: f32[7,5]; tb=true | "
        "acc: f32[67,131], a: f32[2,259,67], b: f32[2,259,131]; ta=true | "
        "acc: f32[5,9], a: f32[1031,5], b: f32[1031,9]; ta=true",
};

constinit const OpDef kMatmulAccumulate{
    .signature = "matmul_accumulate(acc, a, b, micro; ta = false, tb = false) -> sum",
    .doc =
        "Gradient accumulation of a matmul in place: acc = a b in micro-batch 0, acc += a b in "
        "later ones.",
    .traits = {.effect = true, .differentiable = false, .matmul = true},
    .overwrites = "sum<-acc",
    .parts = "added = matmul(a, b; out=\"f32\"); sum = accumulate(acc, added, micro)",
    .infer = infer_parts,
    .cost = cost_parts,
    .sharding_of = sharding_of_matmul_sum,
    .samples =
        "acc: f32[5,7], a: f32[2,3,5], b: f32[2,3,7], micro: i32[]; ta=true | "
        "acc: f32[6,3], a: bf16[11,6], b: bf16[11,3], micro: i32[]; ta=true | "
        "acc: f32[67,131], a: f32[2,259,67], b: f32[2,259,131], micro: i32[]; ta=true | "
        "acc: f32[5,9], a: f32[1031,5], b: f32[1031,9], micro: i32[]; ta=true",
};

constinit const OpDef kEmbeddingGradAdd{
    .signature = "embedding_grad_add(acc, ids, dy; rows: int) -> sum",
    .doc =
        "The gradient of an embedding table that is also the head: embedding_grad added to acc in "
        "place.",
    .traits = {.effect = true, .differentiable = false},
    .overwrites = "sum<-acc",
    .parts = "dw = embedding_grad(ids, dy; out=\"f32\"); sum = add_in_place(acc, dw)",
    .infer = infer_parts,
    .cost = cost_parts,
    .sharding_of = sharding_of_added_table,
    .samples =
        "acc: f32[7,5], ids: i32[2,3], dy: f32[2,3,5]; rows=7 | "
        "acc: f32[6,3], ids: i32[2,5], dy: bf16[2,5,3]; rows=6 | "
        "acc: f32[67,68], ids: i32[4,131], dy: f32[4,131,68]; rows=67",
};

constinit const OpDef kLayerNormGradSums{
    .signature = "layer_norm_grad_sums(dy, x, w, mean, rstd, more?; out = \"\") -> dx, dw, db, sum",
    .doc =
        "layer_norm_grad and related gradients in one pass: `more`, another gradient of x, is "
        "added to dx; db is the gradient of the norm's bias; sum, over the rows of dx, is the "
        "gradient of a bias added to x. `out` names the dtype of dw, db and sum.",
    .traits = {.differentiable = false},
    .parts =
        "dx, dw = layer_norm_grad(dy, x, w, mean, rstd); dx = add(dx, more); db = sum_rows(dy); "
        "sum = sum_rows(dx)",
    .infer = infer_parts,
    .cost = cost_parts,
    .sharding = "...N, ...N, N, ..., ..., ...N -> ...N, N, N, N",
    .samples =
        "dy: f32[2,3,8], x: f32[2,3,8], w: f32[8], mean: f32[2,3], rstd: f32[2,3], "
        "more: f32[2,3,8] | "
        "dy: f32[37,5], x: f32[37,5], w: f32[5], mean: f32[37], rstd: f32[37] | "
        "dy: bf16[5,9], x: bf16[5,9], w: bf16[9], mean: f32[5], rstd: f32[5], more: bf16[5,9]; "
        "out=\"f32\" | "
        "dy: f32[259,131], x: f32[259,131], w: f32[131], mean: f32[259], rstd: f32[259], "
        "more: f32[259,131]",
};

}  // namespace weft
