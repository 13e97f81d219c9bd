// Builds elementwise programs from calls of single ops and of fused nodes.
#include "runtime/cuda/elementwise/elementwise_program.h"

#include <algorithm>

#include "graph/fused_body.h"

namespace weft::cuda {

namespace {

ElementwiseOp elementwise_op(const Call& call) {
  const std::string_view name = call.op->name();
  if (name == "add" || name == "add_in_place") return ElementwiseOp::Add;
  if (name == "cast") return ElementwiseOp::Cast;
  if (name == "gelu") return ElementwiseOp::Gelu;
  if (name == "gelu_grad") return ElementwiseOp::GeluGrad;
  if (name == "dropout") return ElementwiseOp::Dropout;
  call.refuse("no elementwise kernel");
}

// The step of one op and its result; the caller sets the values it reads.
ElementwiseStep make_step(const Call& call) {
  ElementwiseStep step;
  step.op = elementwise_op(call);
  step.result = call.results.at(0).dtype;
  if (step.op == ElementwiseOp::Dropout) {
    step.drop =
        drop_rule(call.double_attr("rate"), call.int_attr("stream"), call.type("rng").elements());
  }
  return step;
}

void add_fused_steps(ElementwiseProgram& program, const Call& call) {
  const FusedBody body = parse_fused_body(call.text_attr("body"));
  call.require(body.size() <= ElementwiseProgram::kMaxSteps, body.size(), " statements > ",
               ElementwiseProgram::kMaxSteps);
  const auto value = [&](const FusedArg& arg) {
    return static_cast<int>(arg.index) + (arg.is_operand ? 0 : program.operands);
  };
  std::vector<TensorType> types;
  for (const FusedStatement& statement : body) {
    const Call inner = fused_call(statement, call.operands, types);
    ElementwiseStep step = make_step(inner);
    step.left = value(statement.args.front());
    step.right = value(statement.args.back());
    types.push_back(inner.results.at(0));
    program.step[program.steps++] = step;
  }
}

}  // namespace

ElementwiseProgram elementwise_program(const Call& call) {
  call.require(call.operands.size() <= ElementwiseProgram::kMaxOperands, call.operands.size(),
               " operands > ", ElementwiseProgram::kMaxOperands);
  ElementwiseProgram program;
  program.operands = static_cast<int>(call.operands.size());
  if (call.op->name() == "fused") {
    add_fused_steps(program, call);
  } else {
    ElementwiseStep step = make_step(call);
    step.right = program.operands - 1;
    program.step[program.steps++] = step;
  }
  return program;
}

std::optional<DropoutAdd> dropout_add(const ElementwiseProgram& program) {
  if (program.operands != 3 || program.steps != 2) return std::nullopt;
  const ElementwiseStep& drop = program.step[0];
  const ElementwiseStep& add = program.step[1];
  if (drop.op != ElementwiseOp::Dropout || add.op != ElementwiseOp::Add) return std::nullopt;
  if (add.result != drop.result) return std::nullopt;
  const int dropped = program.operands;  // the value of the first step
  const int added = add.left == dropped ? add.right : add.left;
  if (std::max(add.left, add.right) != dropped || added == dropped) return std::nullopt;
  return DropoutAdd{static_cast<size_t>(drop.left), static_cast<size_t>(added),
                    static_cast<size_t>(drop.right), drop.drop};
}

}  // namespace weft::cuda
