// Requirements on every op definition: samples, a reference kernel, a gradient or an explicit
// refusal, a text form that parses back, and an infer that rejects operands that do not fit.
#include <gtest/gtest.h>

#include <set>

#include "conformance/ops_under_test.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "graph/ops_markdown.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

class DefinitionTest : public ::testing::TestWithParam<const OpDef*> {};

// A graph of this one call that returns every result.
Graph one_op_graph(const Call& call) {
  Graph graph("one");
  std::vector<Value*> operands;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const std::string name = cat("x", i);
    Node* source = graph.insert_source(nullptr, kInput, name, call.operands[i], {.name = name});
    operands.push_back(source->result());
  }
  Node* node = graph.insert(nullptr, *call.op, operands, call.attrs, {.name = "y"});
  for (size_t i = 0; i < node->results.size(); ++i) {
    graph.add_output({OutputRole::Other, cat("y", i)}, node->result(i));
  }
  return graph;
}

// Dims that may change without affecting any result: dims that are summed over, and tables longer
// than needed.
bool is_free_dim(std::string_view op, size_t operand, size_t dim) {
  static const std::set<std::tuple<std::string_view, size_t, size_t>> kFree = {
      {"sum_rows", 0, 0},
      {"sum_rows", 0, 1},
      {"embedding", 1, 0},
      {"add_positions", 1, 0},
      {"add_positions_grad", 0, 0},
      {"add_positions_grad", 0, 1},
      {"cross_entropy", 0, 2},
      {"cross_entropy", 0, 1},
      {"square_sum", 0, 0},
      {"square_sum", 0, 1},
      {"square_sum", 1, 0},
      {"square_sum", 1, 1},
      {"cross_entropy_stats", 0, 2},
      {"cross_entropy_stats", 0, 1},
      {"cross_entropy_combine", 0, 0},
      {"router", 0, 2},
      {"expert_counts", 0, 0},
      {"expert_counts", 0, 1},
      {"expert_counts", 0, 2},
      {"expert_counts", 1, 0},
      {"expert_counts", 1, 1},
      {"expert_counts", 1, 2},
      {"expert_counts", 2, 0},
      {"expert_counts", 2, 1},
      {"expert_counts", 2, 2},
      {"lost_rows", 0, 0},
      {"lost_rows", 0, 1},
      {"lost_rows", 0, 2},
      {"lost_rows", 1, 0},
      {"lost_rows", 1, 1},
      {"lost_rows", 1, 2},
      {"guard_norm", 1, 0},
      {"dispatch", 1, 2},
      {"combine", 0, 0},
      {"combine", 0, 1},
      {"combine", 0, 2},
      {"combine", 1, 2},
      {"combine_weights", 0, 0},
      {"combine_weights", 0, 1},
      {"combine_weights", 0, 2},
      {"weighted_swiglu", 1, 2},
      {"weighted_swiglu_grad", 2, 2},
  };
  return kFree.contains({op, operand, dim});
}

// Whether infer rejects the call with these operands, or infers other results for them.
bool refused_or_seen(Call call) {
  const std::vector<TensorType> before = std::move(call.results);
  call.results.clear();
  try {
    return call.op->infer(call) != before;
  } catch (const UserError& error) {
    EXPECT_TRUE(std::string_view(error.what()).find(call.op->name()) != std::string_view::npos)
        << error.what();
    return true;
  }
}

TEST_P(DefinitionTest, HasSamplesKernelAndGradient) {
  const OpDef& op = *GetParam();
  EXPECT_FALSE(parse_samples(op).empty()) << op.name() << " has no samples";
  EXPECT_FALSE(op.doc.empty());
  EXPECT_EQ(op.vjp != nullptr, op.traits.differentiable);
  size_t rows = 0;
  for (const Kernel& kernel : reference_kernels()) rows += kernel.op == op.name() ? 1 : 0;
  EXPECT_EQ(rows, 1u) << op.name() << " has " << rows << " reference kernels";
  EXPECT_NE(ops_markdown().find(op.signature), std::string::npos);
}

TEST_P(DefinitionTest, PrintsAndParsesBack) {
  for (const Call& call : parse_samples(*GetParam())) {
    const Graph graph = one_op_graph(call);
    verify(graph);
    const std::string text = print_graph(graph);
    const Graph parsed = parse_graph(text);
    verify(parsed);
    EXPECT_EQ(print_graph(parsed), text);
    EXPECT_EQ(hash(parsed), hash(graph)) << text;
    const Node& node = *parsed.nodes().back();
    EXPECT_EQ(node.op, call.op);
    EXPECT_EQ(node.attrs, call.attrs);
    EXPECT_EQ(node.call().results, call.results);
  }
}

TEST_P(DefinitionTest, RefusesAnOperandWithAnotherDim) {
  for (const Call& call : parse_samples(*GetParam())) {
    for (size_t i = 0; i < call.operands.size(); ++i) {
      for (size_t dim = 0; dim < call.operands[i].shape.size(); ++dim) {
        if (is_free_dim(call.op->name(), i, dim)) continue;
        Call changed = call;
        changed.operands[i].shape[dim] += 1;
        EXPECT_TRUE(refused_or_seen(changed))
            << describe(changed) << ": operand " << i << " dim " << dim << " is not looked at";
      }
    }
  }
}

TEST_P(DefinitionTest, RefusesAnOperandOfAnotherKind) {
  if (GetParam()->name() == "split_time") return;  // copies elements of any kind
  for (const Call& call : parse_samples(*GetParam())) {
    for (size_t i = 0; i < call.operands.size(); ++i) {
      Call changed = call;
      DType& dtype = changed.operands[i].dtype;
      dtype = is_floating(dtype) ? DType::I32 : DType::F32;
      changed.results.clear();
      EXPECT_THROW(changed.op->infer(changed), UserError) << describe(changed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, DefinitionTest, ::testing::ValuesIn(computed_ops()),
                         [](const auto& test) { return std::string(test.param->name()); });

TEST(OpList, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const OpDef* op : all_ops()) {
    EXPECT_TRUE(names.insert(op->name()).second) << op->name();
    EXPECT_EQ(find_op(op->name()), op);
  }
  EXPECT_EQ(find_op("no_such_op"), nullptr);
}

}  // namespace
}  // namespace weft
