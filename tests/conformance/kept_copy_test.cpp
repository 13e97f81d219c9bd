// adamw_cast has the bits of adamw followed by a cast, on every row of every backend; without an
// update it leaves the copy unchanged.
#include <gtest/gtest.h>

#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "graph/ops/ops.h"
#include "runtime/cpu/device.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

// Samples of the op, and shapes that the vector rows of a GPU accept.
std::vector<Call> calls_under_test() {
  std::vector<Call> calls = samples_under_test(kAdamwCast);
  constexpr std::string_view kLarge =
      "w: f32[33,1032], g: f32[33,1032], m: f32[33,1032], v: f32[33,1032], lr: f32[], "
      "coefficient: f32[], count: i32[], low: bf16[33,1032]; decay=0.1 | "
      "w: f32[4096], g: bf16[4096], m: f32[4096], v: f32[4096], lr: f32[], coefficient: f32[], "
      "count: i32[], low: f16[4096], coordinate: i32[]; decay=0.1, decayed=[1024,2048,5120,6144]";
  for (Call& call : parse_samples(kAdamwCast, kLarge)) calls.push_back(std::move(call));
  return calls;
}

size_t operand_at(std::string_view name) {
  return kAdamwCast.parsed().operand_index(name);
}

// The same values without the copy.
template <class T>
std::vector<T> without_low(std::vector<T> operands) {
  operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(operand_at("low")));
  return operands;
}

// The same update without the copy.
Call without_copy(Call call) {
  call.op = &kAdamw;
  call.operands = without_low(std::move(call.operands));
  call.results.pop_back();
  return call;
}

HostTensor cast_of(const HostTensor& w, DType dtype) {
  Call call{.op = &kCast, .operands = {w.type}, .results = {}, .attrs = {dtype, std::string()}};
  call.results = kCast.infer(call);
  const auto host = make_host_device({.threads = 1});
  return run_call(reference_kernels(), *host, call, {w}).at(0);
}

class KeptCopy : public ::testing::TestWithParam<const Backend*> {};

TEST_P(KeptCopy, HasTheBitsOfTheUpdateAndOfACast) {
  const Backend& backend = *GetParam();
  Device* device = device_or_skip(backend);
  if (device == nullptr) return;
  for (const Call& call : calls_under_test()) {
    for (uint64_t round = 0; round < 3; ++round) {
      const std::vector<HostTensor> inputs = make_inputs(call, round);
      const auto updated =
          run_call(backend.kernels(), *device, without_copy(call), without_low(inputs));
      const bool skipped = inputs.at(operand_at("coefficient")).value(0) == 0;
      for (const Kernel& kernel : backend.kernels()) {
        if (kernel.op != "adamw_cast" || !kernel.supports(call).allowed) continue;
        SCOPED_TRACE(cat(kernel.name, ": ", describe(call), " round ", round));
        const auto found = run_kernel(kernel, *device, call, inputs);
        for (size_t i = 0; i < updated.size(); ++i) EXPECT_EQ(found[i].bytes, updated[i].bytes);
        const HostTensor& low = found.at(kAdamwCast.parsed().result_index("low2"));
        EXPECT_EQ(low.bytes, skipped ? inputs.at(operand_at("low")).bytes
                                     : cast_of(updated[0], low.type.dtype).bytes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, KeptCopy, ::testing::ValuesIn(computing_backends()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace weft
