// Prints the selected variant of the vector kernels, and one line per call of the cpu backend with
// a hash of its results: samples, large shapes, floats of all magnitudes, sums over ranks.
#include <cstdio>
#include <cstring>

#include "base/hash.h"
#include "conformance/cpu_level.h"
#include "conformance/inputs.h"
#include "conformance/large_cases.h"
#include "conformance/ops_under_test.h"
#include "runtime/comm/sum.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/kernels.h"

namespace weft {
namespace {

uint64_t hash_of(const std::vector<char>& bytes) {
  return hash_text({bytes.data(), bytes.size()});
}

void print_call(Device& device, const Call& call, const std::vector<HostTensor>& inputs) {
  std::printf("%s:", describe(call).c_str());
  for (const HostTensor& result : run_call(cpu_kernels(), device, call, inputs)) {
    std::printf(" %016llx", static_cast<unsigned long long>(hash_of(result.bytes)));
  }
  std::printf("\n");
}

// Floats of both signs and all magnitudes, including infinities; no NaNs, whose bits may vary.
HostTensor all_floats(const TensorType& type) {
  HostTensor tensor(type);
  const int64_t n = type.elements();
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = static_cast<uint32_t>((uint64_t{1} << 32) / static_cast<uint64_t>(n) *
                                          static_cast<uint64_t>(i));
    if ((bits & 0x7f800000u) == 0x7f800000u) bits &= 0xff800000u;
    std::memcpy(tensor.bytes.data() + i * 4, &bits, 4);
  }
  return tensor;
}

void print_all_floats(Device& device, std::string_view op, std::string_view sample) {
  for (const Call& call : parse_samples(*find_op(op), sample)) {
    std::vector<HostTensor> inputs = make_inputs(call, 0);
    inputs.back() = all_floats(inputs.back().type);
    print_call(device, call, inputs);
  }
}

void print_sums() {
  constexpr int64_t kElements = 4133;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (size_t count = 1; count <= 5; ++count) {
      const TensorType type{dtype, {kElements}, {}};
      std::vector<HostTensor> sources;
      std::vector<const void*> pointers;
      for (size_t k = 0; k < count; ++k) sources.push_back(random_tensor(type, k));
      for (const HostTensor& source : sources) pointers.push_back(source.bytes.data());
      HostTensor sum(type);
      tree_sum(pointers, dtype, kElements, {sum.bytes.data(), dtype});
      std::printf("sum of %zu %s: %016llx\n", count, std::string(dtype_name(dtype)).c_str(),
                  static_cast<unsigned long long>(hash_of(sum.bytes)));
    }
  }
}

void print_all() {
  std::printf("%s\n", chosen_variant());
  const auto device = make_host_device({.threads = 2});
  for (const OpDef* op : computed_ops()) {
    for (const Call& call : samples_under_test(*op)) {
      for (uint64_t round = 0; round < 3; ++round) {
        print_call(*device, call, make_inputs(call, round));
      }
    }
  }
  for (const LargeCase& large : kLargeCases) {
    if (find_op(large.op)->traits.matmul) continue;  // their matmuls are not clones
    for (const Call& call : large_calls(large)) print_call(*device, call, make_inputs(call, 0));
  }
  print_all_floats(*device, "gelu", "x: f32[131,1001]");
  print_all_floats(*device, "gelu_grad", "dy: f32[131,1001], x: f32[131,1001]");
  print_all_floats(*device, "swiglu", "x: f32[131,1002]");
  print_all_floats(*device, "cast", "x: f32[131,1001]; dtype=bf16 | x: f32[131,1001]; dtype=f16");
  print_sums();
}

}  // namespace
}  // namespace weft

int main() {
  weft::print_all();
}
