// Lower bounds of a call, and the efficiency of its kernels.
#include "graph/cost.h"

#include <gtest/gtest.h>

#include "graph/ops/ops.h"
#include "graph/samples.h"

namespace weft {
namespace {

DeviceSpec round_numbers() {
  DeviceSpec device;
  device.matmul_flops_f32 = 1000;
  device.matmul_flops_bf16 = 4000;
  device.vector_flops = 10;
  device.memory_bandwidth = 100;
  device.launch_latency = 3;
  device.matmul_efficiency = 0.5;
  return device;
}

double seconds(const OpDef& op, const std::string& operands, const DeviceSpec& device) {
  return predicted_seconds(parse_samples(op, operands).front(), device);
}

TEST(Cost, AMatmulRunsAtTheRateOfItsType) {
  const DeviceSpec device = round_numbers();
  // 2 * 100^3 FLOPs, far more than its bytes.
  EXPECT_DOUBLE_EQ(seconds(kMatmul, "a: f32[100,100], b: f32[100,100]", device), 4000 + 3);
  EXPECT_DOUBLE_EQ(seconds(kMatmul, "a: bf16[100,100], b: bf16[100,100]", device), 1000 + 3);
}

TEST(Cost, RowsThatBeginAnywhereCostMore) {
  DeviceSpec device = round_numbers();
  device.unaligned_share = 0.25;
  const std::string aligned = "a: bf16[100,104], b: bf16[104,104]";  // 2163200 FLOPs at 2000
  EXPECT_DOUBLE_EQ(seconds(kMatmul, aligned, device), 1081.6 + 3);
  const std::string unaligned = "a: bf16[104,100], b: bf16[100,104]";  // the same at 500
  EXPECT_DOUBLE_EQ(seconds(kMatmul, unaligned, device), 4 * 1081.6 + 3);
  EXPECT_DOUBLE_EQ(seconds(kMatmul, "a: f32[100,100], b: f32[100,100]", device), 4000 + 3);
}

TEST(Cost, OtherOpsAreBoundByBytesOrTheVectorRate) {
  DeviceSpec device = round_numbers();
  EXPECT_DOUBLE_EQ(seconds(kAdd, "a: f32[100], b: f32[100]", device), 12 + 3);  // 1200 bytes
  EXPECT_DOUBLE_EQ(seconds(kGelu, "x: f32[100]", device), 120 + 3);             // 1200 FLOPs
  device.vector_flops = 0;
  EXPECT_DOUBLE_EQ(seconds(kGelu, "x: f32[100]", device), 8 + 3);
}

TEST(Cost, AMeasuredShareReplacesTheGeneralOne) {
  DeviceSpec device = round_numbers();
  device.kernels = {{"matmul", "f32", 0.25}, {"add", "f32", 2}};
  EXPECT_DOUBLE_EQ(seconds(kMatmul, "a: f32[100,100], b: f32[100,100]", device), 8000 + 3);
  EXPECT_DOUBLE_EQ(seconds(kMatmul, "a: bf16[100,100], b: bf16[100,100]", device), 1000 + 3);
  EXPECT_DOUBLE_EQ(seconds(kAdd, "a: f32[100], b: f32[100]", device), 6 + 3);
}

TEST(Cost, TheTypeIsThatOfTheLargestFloatingOperand) {
  const Call call = parse_samples(kEmbedding, "ids: i32[3], w: bf16[10,4]").front();
  EXPECT_EQ(kernel_key(call), (std::pair<std::string, std::string>{"embedding", "bf16"}));
  const Call loss = parse_samples(kCrossEntropyGrad,
                                  "dloss: f32[], logits: bf16[70,50], targets: i32[70], "
                                  "lse: f32[70], count: f32[]")
                        .front();
  EXPECT_EQ(kernel_key(loss), (std::pair<std::string, std::string>{"cross_entropy_grad", "bf16"}));
}

}  // namespace
}  // namespace weft
