// Fused ops have the bits of the ops they replace: every row of every backend against the rows of
// its parts in sequence.
#include <gtest/gtest.h>

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
