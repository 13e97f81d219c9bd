// Fused ops have the bits of the ops they replace: every row of every backend against the rows of
// its parts in sequence.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "conformance/fast_cases.h"
#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "graph/parts.h"
#include "runtime/cpu/device.h"
#include "runtime/device.h"

namespace weft {
namespace {

// Runs the parts as separate ops.
std::vector<HostTensor> run_parts(std::span<const Kernel> kernels, Device& device, const Call& call,
                                  const std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> results;
  for (const TensorType& type : call.results) results.emplace_back(type);
  std::vector<HostTensor> temporaries;
  for (const Part& part : parts_of(call)) {
    std::vector<HostTensor> operands;
    for (const PartPlace& place : part.operands) {
      operands.push_back(place.kind == PartPlace::Kind::Operand  ? inputs.at(place.index)
                         : place.kind == PartPlace::Kind::Result ? results.at(place.index)
                                                                 : temporaries.at(place.index));
    }
    const auto found = run_call(kernels, device, part.call, operands);
    for (size_t i = 0; i < found.size(); ++i) {
      const PartPlace& place = part.results[i];
      if (place.kind == PartPlace::Kind::Result) {
        results.at(place.index) = found[i];
      } else {
        temporaries.push_back(found[i]);
      }
    }
  }
  return results;
}

class PartsTest : public ::testing::TestWithParam<std::tuple<const Backend*, const OpDef*>> {};

TEST_P(PartsTest, GiveTheSameBits) {
  const auto [backend, op] = GetParam();
  Device* device = device_or_skip(*backend);
  if (device == nullptr) return;
  std::vector<Call> calls = samples_under_test(*op);
  for (Call& call : widened_samples(*op)) calls.push_back(std::move(call));
  for (Call& call : fast_calls(*op)) calls.push_back(std::move(call));
  std::map<std::string_view, int> runs;  // of each row
  for (const Kernel& kernel : backend->kernels()) {
    if (kernel.op == op->name()) runs[kernel.name];
  }
  for (const Call& call : calls) {
    for (uint64_t round = 0; round < 2; ++round) {
      const std::vector<HostTensor> inputs = make_inputs(call, round);
      const auto expected = run_parts(backend->kernels(), *device, call, inputs);
      for (const Kernel& kernel : backend->kernels()) {
        if (kernel.op != op->name() || !kernel.supports(call).allowed) continue;
        ++runs[kernel.name];
        const auto found = run_kernel(kernel, *device, call, inputs);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(found[i].bytes, expected[i].bytes)
              << kernel.name << ": " << describe(call) << " result " << i << " round " << round;
        }
      }
    }
  }
  EXPECT_FALSE(runs.empty());
  for (const auto& [name, count] : runs) EXPECT_GT(count, 0) << name << " takes no sample";
}

// The loss with its gradient, which is not a row of parts: lse stays inside.
class LossTest : public ::testing::TestWithParam<const Backend*> {
 protected:
  void SetUp() override { device_ = device_or_skip(*GetParam()); }

  Device* device_ = nullptr;
};

TEST_P(LossTest, WithItsGradientHasTheBitsOfTheTwo) {
  const auto run = [&](std::string_view op, const std::string& sample,
                       const std::vector<HostTensor>& inputs) {
    const Call call = parse_samples(*find_op(op), sample).at(0);
    return run_call(GetParam()->kernels(), *device_, call, inputs);
  };
  for (const auto& [type, rows, length] :
       {std::tuple("f32", 9, 264), {"bf16", 70, 5008}, {"bf16", 3, 50304}, {"f16", 3, 32000}}) {
    const std::string logits =
        cat("logits: ", type, "[", rows, ",", length, "], targets: i32[", rows, "]");
    const std::string both = cat("dloss: f32[], ", logits, ", count: f32[]");
    SCOPED_TRACE(both);
    const std::vector<HostTensor> in =
        make_inputs(parse_samples(*find_op("cross_entropy_both"), both).at(0), 0);
    const auto found = run("cross_entropy_both", both, in);
    const auto loss = run("cross_entropy", cat(logits, ", count: f32[]"), {in[1], in[2], in[3]});
    const auto grad = run("cross_entropy_grad",
                          cat("dloss: f32[], ", logits, ", lse: f32[", rows, "], count: f32[]"),
                          {in[0], in[1], in[2], loss[1], in[3]});
    EXPECT_EQ(found[0].bytes, grad[0].bytes);
    EXPECT_EQ(found[1].bytes, loss[0].bytes);
  }
}

// Row 0 is NaN in all elements that two threads of a GPU read, so these have no largest logit; the
// target is not among them.
TEST_P(LossTest, NaNReachesIt) {
  constexpr size_t kLength = 50304;
  const Call call = parse_samples(*find_op("cross_entropy"),
                                  "logits: bf16[2,50304], targets: i32[2], count: f32[]")
                        .at(0);
  std::vector<double> logits(2 * kLength, 1.0);
  for (size_t i = 0; i < kLength; ++i) {
    const size_t thread = i / 8 % 512;
    if (thread == 5 || thread == 21) logits[i] = std::numeric_limits<double>::quiet_NaN();
  }
  const std::vector<HostTensor> inputs = {HostTensor(call.operands[0], logits),
                                          HostTensor(call.operands[1], {0, 0}),
                                          HostTensor(call.operands[2], {2})};
  for (const Kernel& kernel : GetParam()->kernels()) {
    if (kernel.op != "cross_entropy" || !kernel.supports(call).allowed) continue;
    const auto found = run_kernel(kernel, *device_, call, inputs);
    EXPECT_TRUE(std::isnan(found[0].value(0))) << kernel.name << " " << found[0].value(0);
    EXPECT_TRUE(std::isnan(found[1].value(0))) << kernel.name << " " << found[1].value(0);
    // A sum of 50304 ones in f32.
    EXPECT_NEAR(found[1].value(1), 1 + std::log(50304.0), 1e-4) << kernel.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, LossTest, ::testing::ValuesIn(compared_backends()),
                         [](const auto& test) { return std::string(test.param->name); });

std::vector<const OpDef*> fused_ops() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : computed_ops()) {
    if (!op->parts.empty()) ops.push_back(op);
  }
  return ops;
}

INSTANTIATE_TEST_SUITE_P(FusedOps, PartsTest,
                         ::testing::Combine(::testing::ValuesIn(compared_backends()),
                                            ::testing::ValuesIn(fused_ops())),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param)->name, "_",
                                      std::get<1>(test.param)->name());
                         });

}  // namespace
}  // namespace weft
