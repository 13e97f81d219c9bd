// The cpu kernels on shapes that exceed their tiles, chunks and blocks, unlike the op samples:
// compared with the reference, and with the same bits for any number of threads.
#include <gtest/gtest.h>

#include <cmath>

#include "conformance/inputs.h"
#include "conformance/large_cases.h"
#include "conformance/ops_under_test.h"
#include "graph/builder.h"
#include "graph/ops/ops.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/kernels.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

class LargeShapes : public ::testing::TestWithParam<LargeCase> {};

// The reference computes in double. The f32 sums of a kernel have up to several hundred terms, each
// about as large as the largest element: 256 f32 ulps of it, and two half-type ulps for the
// rounding.
TEST_P(LargeShapes, AgreesWithTheReference) {
  const auto device = make_host_device({.threads = 2});
  for (const Call& call : large_calls(GetParam())) {
    const auto inputs = make_inputs(call, 0);
    const auto expected = run_call(reference_kernels(), *device, call, inputs);
    const auto found = run_call(cpu_kernels(), *device, call, inputs);
    for (size_t r = 0; r < expected.size(); ++r) {
      const std::vector<double> a = found[r].values();
      const std::vector<double> b = expected[r].values();
      const DType dtype = expected[r].type.dtype;
      const double step = dtype == DType::BF16 ? 0x1p-7 : dtype == DType::F16 ? 0x1p-10 : 0;
      double largest = 0;
      for (const double value : b) largest = std::max(largest, std::fabs(value));
      for (size_t i = 0; i < b.size(); ++i) {
        if (std::isnan(a[i]) && std::isnan(b[i])) continue;  // written by neither
        const double allowed = 256 * 0x1p-23 * largest + 2 * step * std::fabs(b[i]);
        ASSERT_LE(std::fabs(a[i] - b[i]), allowed)
            << describe(call) << " result " << r << " element " << i << ": " << a[i]
            << ", expected " << b[i];
      }
    }
  }
}

TEST_P(LargeShapes, ThreadsDoNotChangeBits) {
  const auto one = make_host_device({.threads = 1});
  const auto three = make_host_device({.threads = 3});
  for (const Call& call : large_calls(GetParam())) {
    const auto inputs = make_inputs(call, 0);
    const auto expected = run_call(cpu_kernels(), *one, call, inputs);
    const auto found = run_call(cpu_kernels(), *three, call, inputs);
    for (size_t r = 0; r < expected.size(); ++r) {
      EXPECT_EQ(found[r].bytes, expected[r].bytes) << describe(call) << " result " << r;
    }
  }
}

// What async_tp relies on: a row of a matmul has the same bits whichever rows are computed with it.
TEST(MatmulRows, DoNotDependOnOtherRows) {
  const auto device = make_host_device({.threads = 2});
  constexpr int64_t kRows = 203, kDepth = 907, kCols = 301;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const bool tb : {false, true}) {
      const TensorType weight{dtype, tb ? Shape{kCols, kDepth} : Shape{kDepth, kCols}, {}};
      const HostTensor a = random_tensor({dtype, {kRows, kDepth}, {}}, 1);
      const HostTensor b = random_tensor(weight, 2);
      const HostTensor bias = random_tensor({dtype, {kCols}, {}}, 3);
      const auto multiply = [&](const HostTensor& rows) {
        const TensorType result{dtype, {rows.type.shape[0], kCols}, {}};
        const Call call{
            &kMatmul, {rows.type, weight, bias.type}, {result}, make_attrs(kMatmul, {{"tb", tb}})};
        return run_call(cpu_kernels(), *device, call, {rows, b, bias}).front();
      };
      const HostTensor full = multiply(a);
      for (const int64_t size : {1, 2, 7, 29, 96, 202}) {
        const int64_t first = kRows - size;
        HostTensor rows({dtype, {size, kDepth}, {}});
        rows.bytes.assign(a.bytes.end() - rows.type.bytes(), a.bytes.end());
        const HostTensor found = multiply(rows);
        EXPECT_TRUE(std::equal(found.bytes.begin(), found.bytes.end(),
                               full.bytes.end() - found.type.bytes(), full.bytes.end()))
            << dtype_name(dtype) << ", rows from " << first << (tb ? ", tb" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LargeShapes, ::testing::ValuesIn(kLargeCases),
                         [](const auto& test) { return std::string(test.param.op); });

}  // namespace
}  // namespace weft
