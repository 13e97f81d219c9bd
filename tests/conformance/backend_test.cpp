// Every kernel row of every backend against the reference on all samples, the bits of the cpu
// backend for 1, 2 and 3 threads, and NaN in a loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "graph/ops/ops.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/kernels.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

constexpr uint64_t kRounds = 3;

// The distance between adjacent numbers of the dtype at this magnitude.
double ulp(double value, DType dtype) {
  const int bits = dtype == DType::BF16 ? 8 : dtype == DType::F16 ? 11 : 24;
  const double smallest = dtype == DType::F16 ? 0x1p-24 : 0x1p-133;
  if (value == 0 || !std::isfinite(value)) return smallest;
  return std::max(smallest, std::ldexp(1.0, std::ilogb(value) + 1 - bits));
}

// The reference computes in double and rounds once. A kernel computes in f32 and rounds once:
// - its sums carry rounding errors relative to the largest terms. Hence 32 f32 ulps of the largest
//   element of the tensor, not of each element, which may be the result of a cancellation;
// - such an error may flip the last rounding to bf16 or f16, hence one ulp there, and two for a
//   fused op, whose parts round one after the other;
// - a sum over values that a fused op has rounded, or a matmul on matrix units of rounded values,
//   such as p and ds of half-type attention, has an error of two half-type ulps of the largest.
double tolerance(const Kernel& kernel, const OpDef& op, DType dtype, DType in, double value,
                 double largest) {
  const double from_sums = 32 * ulp(largest, DType::F32);
  const bool half = dtype == DType::BF16 || dtype == DType::F16;
  const bool several = !op.parts.empty();
  const bool rounds = several || (op.traits.matmul && kernel.name.starts_with("tiled_"));
  const bool of_rounded = rounds && (in == DType::BF16 || in == DType::F16);
  return from_sums + (half ? (several ? 2 : 1) * ulp(value, dtype) : 0) +
         (of_rounded ? 2 * ulp(largest, in) : 0);
}

double largest_element(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

void expect_close(const Kernel& kernel, const Call& call, const HostTensor& found,
                  const HostTensor& expected, const std::string& where) {
  const DType in = call.operands.at(0).dtype;
  if (!is_floating(expected.type.dtype)) {
    EXPECT_EQ(found.values(), expected.values()) << where;
    return;
  }
  const std::vector<double> a = found.values();
  const std::vector<double> b = expected.values();
  const double largest = largest_element(b);
  for (size_t i = 0; i < b.size(); ++i) {
    const bool close = std::isfinite(b[i])
                           ? std::fabs(a[i] - b[i]) <=
                                 tolerance(kernel, *call.op, expected.type.dtype, in, b[i], largest)
                           : a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    ASSERT_TRUE(close) << where << ", element " << i << ": " << a[i] << ", expected " << b[i];
  }
}

// Whether each element is a copy or one operation, so that f32 rounds it once as the reference
// does. The result of a single operation has the shape of an operand; otherwise it is a sum.
bool is_exact(const Call& call) {
  const TensorType& result = call.results.at(0);
  const double flops = cost_of(call).flops;
  if (!is_floating(result.dtype) || flops == 0) return true;
  const auto& operands = call.operands;
  const auto floating = [](const TensorType& type) { return is_floating(type.dtype); };
  const bool one_to_one =
      std::none_of(operands.begin(), operands.end(), floating) ||
      std::any_of(operands.begin(), operands.end(), [&](const TensorType& type) {
        return floating(type) && type.shape == result.shape;
      });
  return one_to_one && flops <= static_cast<double>(result.elements());
}

// Compares one row of a backend's table on one sample, for several rounds of inputs.
void compare_row(const Kernel& kernel, Device& device, const Call& call) {
  const auto host = make_host_device({.threads = 1});
  for (uint64_t round = 0; round < kRounds; ++round) {
    const std::vector<HostTensor> inputs = make_inputs(call, round);
    const auto expected = run_call(reference_kernels(), *host, call, inputs);
    const auto found = run_kernel(kernel, device, call, inputs);
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::string where =
          cat(kernel.name, ": ", describe(call), " result ", i, " round ", round);
      if (is_exact(call)) {
        EXPECT_TRUE(found[i].bytes == expected[i].bytes) << where << " differs in its bits";
      }
      expect_close(kernel, call, found[i], expected[i], where);
    }
  }
}

class BackendTest : public ::testing::TestWithParam<std::tuple<const Backend*, const OpDef*>> {};

TEST_P(BackendTest, AgreesWithTheReference) {
  const auto [backend, op] = GetParam();
  Device* device = device_or_skip(*backend);
  if (device == nullptr) return;
  std::vector<Call> calls = samples_under_test(*op);
  for (Call& call : widened_samples(*op)) calls.push_back(std::move(call));
  for (const Call& call : calls) {
    size_t rows = 0;
    for (const Kernel& kernel : backend->kernels()) {
      if (kernel.op != op->name() || !kernel.supports(call).allowed) continue;
      compare_row(kernel, *device, call);
      ++rows;
    }
    EXPECT_GT(rows, 0u) << backend->name << " has no kernel for " << describe(call);
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, BackendTest,
                         ::testing::Combine(::testing::ValuesIn(compared_backends()),
                                            ::testing::ValuesIn(computed_ops())),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param)->name, "_",
                                      std::get<1>(test.param)->name());
                         });

class ThreadsTest : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(ThreadsTest, OneTwoAndThreeThreadsGiveTheSameBits) {
  for (const Call& call : samples_under_test(*GetParam())) {
    const std::vector<HostTensor> inputs = make_inputs(call, 0);
    const auto one = make_host_device({.threads = 1});
    const auto expected = run_call(cpu_kernels(), *one, call, inputs);
    for (int64_t threads : {2, 3}) {
      const auto device = make_host_device({.threads = threads});
      const auto found = run_call(cpu_kernels(), *device, call, inputs);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(found[i].bytes, expected[i].bytes)
            << describe(call) << " result " << i << " with " << threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, ThreadsTest, ::testing::ValuesIn(computed_ops()),
                         [](const auto& test) { return std::string(test.param->name()); });

class LossTest : public ::testing::TestWithParam<const Backend*> {
 protected:
  void SetUp() override { device_ = device_or_skip(*GetParam()); }

  Device* device_ = nullptr;
};

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

}  // namespace
}  // namespace weft
