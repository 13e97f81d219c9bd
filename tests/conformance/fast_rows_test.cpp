// The rows of the CUDA table: without a GPU, that every one is chosen for some call; with one, that
// fast rows give the same bits twice, and agree with the reference on shapes that few op samples
// have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "conformance/fast_cases.h"
#include "conformance/inputs.h"
#include "conformance/ops_under_test.h"
#include "graph/ops/ops.h"
#include "runtime/cpu/device.h"
#include "runtime/cuda/device/backend.h"
#include "runtime/cuda/kernels.h"
#include "runtime/reference/kernels.h"

namespace weft {
namespace {

bool is_fast(const Kernel& kernel) {
  return !kernel.name.starts_with("plain_");
}

// The fast rows that accept a call: the planner chooses the first, another build or GPU may choose
// another.
std::vector<Kernel> fast_rows(const Call& call) {
  std::vector<Kernel> rows;
  for (const Kernel& kernel : cuda_backend().kernels()) {
    if (is_fast(kernel) && kernel.op == call.op->name() && kernel.supports(call).allowed) {
      rows.push_back(kernel);
    }
  }
  return rows;
}

// Rows that refuse every call in builds for other GPUs.
bool is_for_hopper(const Kernel& kernel) {
  return kernel.name.starts_with("hopper_") || kernel.name.starts_with("cluster_");
}

// The rows that plans of builds for Hopper and for other GPUs use for this call.
void insert_chosen(const Call& call, std::set<std::string_view>& chosen) {
  std::vector<Kernel> others;
  for (const Kernel& kernel : cuda_backend().kernels()) {
    if (!is_for_hopper(kernel)) others.push_back(kernel);
  }
  chosen.insert(choose_kernel(cuda_backend().kernels(), call, "cuda", "y").name);
  chosen.insert(choose_kernel(others, call, "cuda", "y").name);
}

TEST(CudaRows, AreAllChosenForSomeCall) {
  std::set<std::string_view> chosen;
  for (const OpDef* op : computed_ops()) {
    for (const auto& calls : {samples_under_test(*op), widened_samples(*op), fast_calls(*op)}) {
      for (const Call& call : calls) insert_chosen(call, chosen);
    }
  }
  for (const Kernel& kernel : cuda_backend().kernels()) {
    if (find_op(kernel.op)->traits.places) continue;  // they have no samples
    EXPECT_TRUE(chosen.contains(kernel.name))
        << kernel.name << " is chosen for no sample of " << kernel.op
        << ": give the op one that it accepts, or delete the row";
  }
}

TEST(FastRows, RunEightMatmulsOnCopies) {
  int found = 0;
  for (const OpDef* op : {&kMatmul, &kMatmulAdd, &kMatmulAccumulate}) {
    for (const Call& call : fast_calls(*op)) {
      const Kernel& chosen = choose_kernel(cuda_backend().kernels(), call, "cuda", "y");
      if (chosen.workspace(call) > cuda::kGemmWorkspace) ++found;
    }
  }
  EXPECT_EQ(found, 8);
}

// The reference computes in double. f32 sums of several hundred terms: 256 f32 ulps of the largest
// element; two half-type ulps for the rounding. Attention also rounds probabilities and ds to the
// half type, which changes a result by some ulps of the largest element.
double allowed(const Call& call, DType dtype, double value, double largest) {
  const OpDef& op = *call.op;
  // A sum over values that a fused op has rounded inherits their error.
  const bool of_rounded = !op.parts.empty() && call.type(0).dtype == DType::BF16;
  const double step = dtype == DType::BF16 || of_rounded ? 0x1p-8
                      : dtype == DType::F16              ? 0x1p-11
                                                         : 0;
  const bool attention = op.name().find("attention") != std::string_view::npos;
  return 256 * 0x1p-23 * largest + 4 * step * std::fabs(value) +
         (attention || of_rounded ? 4 * step * largest : 0);
}

class FastRowsTest : public ::testing::TestWithParam<const OpDef*> {
 protected:
  void SetUp() override { device_ = device_or_skip(cuda_backend()); }

  // The kernel's results, which must be the same in two runs.
  std::vector<HostTensor> run_twice(const Kernel& kernel, const Call& call,
                                    const std::vector<HostTensor>& inputs) {
    const auto found = run_kernel(kernel, *device_, call, inputs);
    const auto again = run_kernel(kernel, *device_, call, inputs);
    for (size_t r = 0; r < found.size(); ++r) {
      EXPECT_EQ(found[r].bytes, again[r].bytes) << "result " << r << " differs between two runs";
    }
    return found;
  }

  void compare(const Kernel& kernel, const Call& call, const std::vector<HostTensor>& inputs) {
    const auto host = make_host_device({.threads = 2});
    const auto expected = run_call(reference_kernels(), *host, call, inputs);
    const auto found = run_twice(kernel, call, inputs);
    for (size_t r = 0; r < expected.size(); ++r) {
      const std::vector<double> a = found[r].values();
      const std::vector<double> b = expected[r].values();
      double largest = 0;
      for (const double value : b) {
        if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
      }
      for (size_t i = 0; i < b.size(); ++i) {
        const double error = std::fabs(a[i] - b[i]);
        ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                    error <= allowed(call, expected[r].type.dtype, b[i], largest))
            << "result " << r << " element " << i << ": " << a[i] << ", expected " << b[i];
      }
    }
  }

  Device* device_ = nullptr;
};

TEST_P(FastRowsTest, AgreeWithTheReferenceAndWithThemselves) {
  for (const Call& call : fast_calls(*GetParam())) {
    for (const Kernel& kernel : fast_rows(call)) {
      SCOPED_TRACE(cat(kernel.name, ": ", describe(call)));
      for (uint64_t round = 0; round < 3; ++round) compare(kernel, call, make_inputs(call, round));
    }
  }
}

// backend_test compares these samples with the reference.
TEST_P(FastRowsTest, GiveTheSameBitsTwiceOnSamples) {
  for (const auto& calls : {samples_under_test(*GetParam()), widened_samples(*GetParam())}) {
    for (const Call& call : calls) {
      for (const Kernel& kernel : fast_rows(call)) {
        SCOPED_TRACE(cat(kernel.name, ": ", describe(call)));
        run_twice(kernel, call, make_inputs(call, 0));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, FastRowsTest, ::testing::ValuesIn(computed_ops()),
                         [](const auto& test) { return std::string(test.param->name()); });

}  // namespace
}  // namespace weft
