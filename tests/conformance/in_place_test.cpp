// For some ops the planner puts the result into the memory of an operand that is no longer needed.
// Every kernel of such an op must give the same bits there as in separate memory.
#include <gtest/gtest.h>

#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "runtime/device.h"

namespace weft {
namespace {

// Runs the kernel with result 0 in the memory of one operand; returns that result.
HostTensor run_shared(const Kernel& kernel, Device& device, const Call& call,
                      const std::vector<HostTensor>& inputs, size_t shared) {
  const auto stream = device.make_stream("compute");
  std::vector<void*> memory;
  Launch launch{.call = &call, .operands = {}, .results = {}, .stream = stream.get()};
  for (const HostTensor& input : inputs) {
    const int64_t bytes = static_cast<int64_t>(input.bytes.size());
    memory.push_back(device.allocate(bytes));
    stream->copy_in(memory.back(), input.bytes.data(), bytes);
    launch.operands.push_back({memory.back(), input.type.dtype, input.type.shape});
  }
  HostTensor result(call.results.at(0));
  launch.results.push_back({memory.at(shared), result.type.dtype, result.type.shape});
  for (size_t i = 1; i < call.results.size(); ++i) {
    const TensorType& type = call.results[i];
    memory.push_back(device.allocate(type.bytes()));
    launch.results.push_back({memory.back(), type.dtype, type.shape});
  }
  launch.workspace_bytes = kernel.workspace != nullptr ? kernel.workspace(call) : 0;
  launch.workspace = device.allocate(launch.workspace_bytes);
  memory.push_back(launch.workspace);
  prepare(kernel, launch);
  stream->launch(kernel, launch);
  stream->copy_out(result.bytes.data(), launch.results[0].data,
                   static_cast<int64_t>(result.bytes.size()));
  stream->synchronize();
  for (void* block : memory) device.release(block);
  return result;
}

class InPlaceTest : public ::testing::TestWithParam<std::tuple<const Backend*, const OpDef*>> {};

TEST_P(InPlaceTest, GivesTheSameBits) {
  const auto [backend, op] = GetParam();
  Device* device = device_or_skip(*backend);
  if (device == nullptr) return;
  int64_t compared = 0;
  for (const Call& call : samples_under_test(*op)) {
    const std::vector<HostTensor> inputs = make_inputs(call, 0);
    for (const Kernel& kernel : backend->kernels()) {
      if (kernel.op != op->name() || !kernel.supports(call).allowed) continue;
      const HostTensor apart = run_kernel(kernel, *device, call, inputs).at(0);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!may_share_memory(call, i)) continue;
        EXPECT_EQ(run_shared(kernel, *device, call, inputs, i).bytes, apart.bytes)
            << kernel.name << ": " << describe(call) << " on operand " << i;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0);
}

std::vector<const OpDef*> in_place_ops() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : computed_ops()) {
    if (op->traits.elementwise || op->traits.in_place) ops.push_back(op);
  }
  return ops;
}

INSTANTIATE_TEST_SUITE_P(InPlaceOps, InPlaceTest,
                         ::testing::Combine(::testing::ValuesIn(computing_backends()),
                                            ::testing::ValuesIn(in_place_ops())),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param)->name, "_",
                                      std::get<1>(test.param)->name());
                         });

}  // namespace
}  // namespace weft
