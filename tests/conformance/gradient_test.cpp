// Every gradient rule against central differences, in f64 on the reference backend:
// L(x) = sum(dy * y(x)), dL/dx[i] = (L(x + h e_i) - L(x - h e_i)) / 2h. y is the first result, as
// others are statistics, or all results of an op that has any number of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/philox.h"
#include "base/text.h"
#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "runtime/cpu/device.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

constexpr size_t kProbes = 24;  // elements probed of each operand

// `call` with its floating-point operands (scalars only if `scalars_too`) and attributes as f64;
// nullopt when the op does not accept them.
std::optional<Call> as_f64(Call call, bool scalars_too) {
  for (TensorType& type : call.operands) {
    const bool wanted = scalars_too || !type.shape.empty();
    if (is_floating(type.dtype) && wanted) type.dtype = DType::F64;
  }
  const auto& specs = call.op->parsed().attrs;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (std::holds_alternative<DType>(call.attrs[i])) call.attrs[i] = DType::F64;
    if (std::holds_alternative<std::string>(call.attrs[i])) call.attrs[i] = std::string();
  }
  call.results.clear();
  try {
    call.results = call.op->infer(call);
  } catch (const UserError&) {
    return std::nullopt;
  }
  return call;
}

// The values of a graph, computed by the reference from the values of its sources.
class Evaluation {
 public:
  Evaluation() : device_(make_host_device({.threads = 1})) {}

  void set(const Value* value, HostTensor tensor) { tensors_[value] = std::move(tensor); }
  const HostTensor& at(const Value* value) const { return tensors_.at(value); }

  void run(const Graph& graph) {
    for (const auto& node : graph.order()) {
      if (node->op->traits.source) continue;
      std::vector<HostTensor> operands;
      for (const Value* operand : node->operands) operands.push_back(tensors_.at(operand));
      auto results = run_call(reference_kernels(), *device_, node->call(), operands);
      for (size_t i = 0; i < results.size(); ++i) set(node->result(i), std::move(results[i]));
    }
  }

 private:
  std::unique_ptr<Device> device_;
  std::map<const Value*, HostTensor> tensors_;
};

// The number of results that have gradients.
size_t differentiated(const Call& call) {
  return call.op->parsed().has_variadic_results() ? call.results.size() : 1;
}

// One op and its gradient rule as a graph.
struct RuleGraph {
  Graph graph{"rule"};
  std::vector<Value*> operands;
  Node* node = nullptr;
  std::vector<Value*> dys;
  std::vector<Value*> grads;

  explicit RuleGraph(const Call& call) {
    for (size_t i = 0; i < call.operands.size(); ++i) {
      const std::string name = cat("x", i);
      operands.push_back(
          graph.insert_source(nullptr, kInput, name, call.operands[i], {.name = name})->result());
    }
    node = graph.insert(nullptr, *call.op, operands, call.attrs, {.name = "y"});
    for (size_t i = 0; i < differentiated(call); ++i) {
      const std::string name = cat("dy", i);
      dys.push_back(
          graph.insert_source(nullptr, kInput, name, node->result(i)->type, {.name = name})
              ->result());
    }
    Builder builder(graph);
    std::vector<Value*> arrived = dys;
    arrived.resize(node->results.size(), nullptr);
    Vjp vjp(builder, *node, arrived);
    grads = call.op->vjp(vjp);
  }
};

double weighted_loss(const Call& call, Device& device, const std::vector<HostTensor>& operands,
                     const std::vector<HostTensor>& dys) {
  const auto results = run_call(reference_kernels(), device, call, operands);
  double loss = 0;
  for (size_t result = 0; result < dys.size(); ++result) {
    const std::vector<double> y = results[result].values(), dy = dys[result].values();
    for (size_t i = 0; i < y.size(); ++i) {
      if (!std::isnan(y[i])) loss += dy[i] * y[i];  // what the op does not write stays NaN
    }
  }
  return loss;
}

// Floating-point operands without a gradient: they are not trained.
bool is_constant(const Call& call, size_t operand) {
  const std::string& name = call.op->parsed().operands.at(operand).name;
  const std::vector<std::string> constants = split(call.op->constants, ' ');
  return name == "count" || std::find(constants.begin(), constants.end(), name) != constants.end();
}

void check_operand(const Call& call, const std::vector<HostTensor>& inputs, size_t operand,
                   const std::vector<HostTensor>& dys, const std::vector<double>& grad) {
  const auto device = make_host_device({.threads = 1});
  const std::vector<double> x = inputs[operand].values();
  double largest = 1;
  for (double value : grad) {
    if (!std::isnan(value)) largest = std::max(largest, std::fabs(value));
  }
  const size_t stride = (x.size() + kProbes - 1) / kProbes;
  for (size_t i = operand % stride; i < x.size(); i += stride) {
    const double h = 1e-5;
    std::vector<HostTensor> moved = inputs;
    std::vector<double> values = x;
    values[i] = x[i] + h;
    moved[operand] = HostTensor(inputs[operand].type, values);
    const double up = weighted_loss(call, *device, moved, dys);
    values[i] = x[i] - h;
    moved[operand] = HostTensor(inputs[operand].type, values);
    const double down = weighted_loss(call, *device, moved, dys);
    // Truncation error h^2 times a third derivative, and cancellation 1e-16 / h: both about 1e-10.
    const double slope = (up - down) / (2 * h);
    if (slope == 0 && std::isnan(grad[i])) continue;  // of what the op does not read
    EXPECT_NEAR(grad[i], slope, 1e-7 * largest)
        << describe(call) << ": operand " << operand << " element " << i;
  }
}

void check_rule(const Call& call) {
  RuleGraph rule(call);
  const std::vector<HostTensor> inputs = make_inputs(call, 0);
  std::vector<HostTensor> dys;
  Evaluation evaluation;
  for (const Value* dy : rule.dys) {
    dys.push_back(random_tensor(dy->type, 99 + dys.size()));
    evaluation.set(dy, dys.back());
  }
  for (size_t i = 0; i < inputs.size(); ++i) evaluation.set(rule.operands[i], inputs[i]);
  evaluation.run(rule.graph);
  ASSERT_EQ(rule.grads.size(), call.operands.size()) << describe(call);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(call.operands[i].dtype) || is_constant(call, i)) {
      EXPECT_EQ(rule.grads[i], nullptr) << describe(call) << ": operand " << i;
      continue;
    }
    ASSERT_NE(rule.grads[i], nullptr) << describe(call) << ": operand " << i;
    ASSERT_EQ(to_string(rule.grads[i]->type), to_string(call.operands[i])) << describe(call);
    check_operand(call, inputs, i, dys, evaluation.at(rule.grads[i]).values());
  }
}

class GradientTest : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(GradientTest, AgreesWithCentralDifferences) {
  size_t checked = 0;
  for (const Call& sample : parse_samples(*GetParam())) {
    std::optional<Call> call = as_f64(sample, true);
    if (!call) call = as_f64(sample, false);
    ASSERT_TRUE(call) << describe(sample) << " has no f64 form";
    // The only form that is already a gradient and has none itself.
    if (call->op == &kMatmul && call->bool_attr("ta")) continue;
    check_rule(*call);
    ++checked;
  }
  EXPECT_GT(checked, 0u);
}

std::vector<const OpDef*> differentiable_ops() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : computed_ops()) {
    if (op->traits.differentiable) ops.push_back(op);
  }
  return ops;
}

INSTANTIATE_TEST_SUITE_P(AllOps, GradientTest, ::testing::ValuesIn(differentiable_ops()),
                         [](const auto& test) { return std::string(test.param->name()); });

}  // namespace
}  // namespace weft
