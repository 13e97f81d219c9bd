// Casts every parameter to the compute dtype before its first use and infers all result types
// again. The cast records the reduce dtype, so that weight-gradient kernels write that dtype
// directly from their f32 accumulators. For this purpose it is added even if compute is in f32.
//
//   %y = matmul(%x, %w) : f32[4,8]
// becomes, with training.mixed_precision_param = "bfloat16":
//   %w.bf16 = cast(%w; dtype=bf16, grad="f32") : bf16[8,8]
//   %y = matmul(%x, %w.bf16) : bf16[4,8]
#include <unordered_map>

#include "base/error.h"
#include "config/derived.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "graph/sources.h"
#include "passes/degrees.h"
#include "passes/pass.h"

namespace weft {

namespace {

class Caster {
 public:
  Caster(Graph& graph, DType compute, DType reduce)
      : graph_(graph), compute_(compute), reduce_(reduce) {}

  // Casts the parameters among the operands and infers the result types again.
  void visit(Node* node) {
    for (size_t i = 0; i < node->operands.size(); ++i) {
      Value* operand = node->operands[i];
      if (operand->def->op != &kParam || !is_trained(*operand->def)) continue;
      graph_.replace_operand(node, i, cast(operand, node));
    }
    try {
      graph_.retype(node);
    } catch (const UserError& error) {
      throw UserError(error.code(),
                      cat("mixed_precision: %", node->result()->name, ": ", error.what()));
    }
  }

  size_t casts() const { return casts_.size(); }

 private:
  Value* cast(Value* param, Node* user) {
    Value*& result = casts_[param];
    if (result == nullptr) {
      Builder builder(graph_, user);
      builder.set_path(user->path);
      result = builder
                   .add(kCast, {param},
                        {{"dtype", compute_}, {"grad", std::string(dtype_name(reduce_))}},
                        cat(param->name, ".", dtype_name(compute_)))
                   ->result();
    }
    return result;
  }

  Graph& graph_;
  DType compute_;
  DType reduce_;
  std::unordered_map<const Value*, Value*> casts_;
};

DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::Float32:
      return DType::F32;
    case Precision::Bfloat16:
      return DType::BF16;
    case Precision::Float16:
      return DType::F16;
  }
  throw InternalError("unknown precision");
}

bool run(Graph& graph, PassContext& context) {
  const TrainingConfig& training = context.config.training;
  const DType compute = dtype_of(training.mixed_precision_param);
  // Gradients that are summed over micro-batches before the reduction stay in f32 until then.
  const DType gradient = reduces_once(context.config, degrees_of(context.mesh))
                             ? DType::F32
                             : dtype_of(training.mixed_precision_reduce);
  if (compute == DType::F32 && gradient == DType::F32) {
    context.note = "parameters and gradients are float32";
    return false;
  }
  const std::vector<Node*> nodes = graph.nodes();
  for (const Node* node : nodes) {
    USER_CHECK(node->phase == Phase::Forward,
               "mixed_precision: the graph already has a backward; run mixed_precision before "
               "autodiff");
    USER_CHECK(node->op != &kCast || node->operand("x")->def->op != &kParam,
               "mixed_precision: parameter %", node->operand("x")->name,
               " is already cast; run mixed_precision once");
  }
  Caster caster(graph, compute, gradient);
  for (Node* node : nodes) {
    if (!node->op->traits.source) caster.visit(node);
  }
  context.note = caster.casts() == 0
                     ? "no parameter is used"
                     : cat(caster.casts(), " parameters cast to ", dtype_name(compute),
                           ", gradients in ", dtype_name(gradient));
  return caster.casts() != 0;
}

}  // namespace

constexpr Pass mixed_precision{
    .name = "mixed_precision",
    .doc =
        "Casts every parameter to the compute dtype before its first use. Master weights stay in "
        "f32, and each cast records the dtype in which its gradient is reduced.",
    .needs = {},
    .gives = {},
    .run = run,
};

}  // namespace weft
