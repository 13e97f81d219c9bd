// Which matmuls run on padded copies, and what memory and blocks they get. The contents of the
// copies are checked by the conformance tests, on a GPU.
#include "runtime/cuda/gemm/gemm_shape.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "graph/samples.h"
#include "runtime/cuda/device/backend.h"
#include "runtime/cuda/kernels.h"

namespace weft::cuda {
namespace {

Call call_of(std::string_view op, std::string_view sample) {
  return parse_samples(*find_op(op), sample).at(0);
}

std::optional<GemmCopies> copies_of(std::string_view sample) {
  return gemm_copies(gemm_shape(call_of("matmul", sample), 0));
}

// Bytes of the workspace in addition to the library's own.
int64_t copied(std::string_view op, std::string_view sample) {
  const Call call = call_of(op, sample);
  return choose_kernel(cuda_backend().kernels(), call, "cuda", "y").workspace(call) -
         kGemmWorkspace;
}

std::vector<int64_t> blocks_of(std::string_view sample) {
  const GemmShape shape = gemm_shape(call_of("matmul", sample), 0);
  const GemmCopies copies = gemm_copies(shape).value();
  std::vector<int64_t> blocks;
  for (int64_t start = 0; start < shape.cols; start += blocks.back()) {
    blocks.push_back(block_columns(shape, copies, start));
  }
  return blocks;
}

constexpr std::string_view kLogits = "a: bf16[64,128,768], b: bf16[50257,768]; tb=true";
constexpr std::string_view kFeaturesGrad = "a: bf16[64,128,50257], b: bf16[50257,768]";
constexpr std::string_view kTableGrad =
    "a: bf16[64,128,50257], b: bf16[64,128,768]; ta=true, out=\"f32\"";

// The head of GPT-2: 64 x 1024 tokens, an eighth of which is processed at once.
TEST(GemmCopies, PadTheMatmulsOfOddLogits) {
  const int64_t table = 50264 * 768 * 2;
  const int64_t thousand_rows = 50264 * 1024 * 2;
  const GemmCopies logits = copies_of(kLogits).value();
  EXPECT_EQ(logits.shape.rows, 50264);
  EXPECT_EQ(logits.shape.depth, 768);
  EXPECT_EQ(logits.left_bytes, table);
  EXPECT_EQ(logits.right_bytes, 0);
  EXPECT_EQ(logits.result_bytes, thousand_rows);

  const GemmCopies features = copies_of(kFeaturesGrad).value();
  EXPECT_EQ(features.shape.rows, 768);
  EXPECT_EQ(features.shape.depth, 50264);
  EXPECT_EQ(features.left_bytes, table);
  EXPECT_EQ(features.right_bytes, thousand_rows);
  EXPECT_EQ(features.result_bytes, 0);

  const GemmCopies of_table = copies_of(kTableGrad).value();
  EXPECT_EQ(of_table.shape.rows, 768);
  EXPECT_EQ(of_table.shape.depth, 8192);
  EXPECT_EQ(of_table.left_bytes, 0);
  EXPECT_EQ(of_table.right_bytes, int64_t{128} << 20);
  EXPECT_EQ(of_table.result_bytes, 0);
}

TEST(GemmCopies, AreInTheWorkspace) {
  for (const std::string_view sample : {kLogits, kFeaturesGrad, kTableGrad}) {
    EXPECT_EQ(copied("matmul", sample), copies_of(sample).value().bytes()) << sample;
  }
  EXPECT_EQ(copied("matmul_add",
                   "acc: f32[50257,768], a: bf16[8192,50257], b: bf16[8192,768]; "
                   "ta=true"),
            int64_t{128} << 20);
  // Both factors, the bias padded to 1008 elements, and the result.
  EXPECT_EQ(copied("matmul", "a: bf16[1024,1001], b: bf16[1001,1001], bias: bf16[1001]"),
            1008 * 1008 * 2 + 1008 * 1024 * 2 + 2048 + 1008 * 1024 * 2);
  // A sum in f32 takes twice the memory.
  EXPECT_EQ(copied("matmul", "a: bf16[1024,1024], b: bf16[1024,1001]; out=\"f32\""),
            1008 * 1024 * 2 + 1008 * 1024 * 4);
}

TEST(GemmCopies, CoverTheResultInBlocks) {
  EXPECT_EQ(blocks_of(kLogits), std::vector<int64_t>(8, 1024));
  EXPECT_EQ(blocks_of("a: bf16[1500,768], b: bf16[50257,768]; tb=true"),
            (std::vector<int64_t>{1024, 476}));
  // The odd remainder is a small block where it lies along the columns that are read.
  EXPECT_EQ(blocks_of(kTableGrad),
            (std::vector<int64_t>{8192, 8192, 8192, 8192, 8192, 8192, 1024, 81}));
  EXPECT_EQ(blocks_of("a: bf16[1024,8200], b: bf16[1024,1001]; ta=true"),
            (std::vector<int64_t>{8192, 8}));
}

TEST(GemmCopies, AreForLargeMatmulsOfOddHalfTypes) {
  EXPECT_FALSE(copies_of("a: bf16[8192,768], b: bf16[50304,768]; tb=true"));
  EXPECT_FALSE(copies_of("a: f32[8192,768], b: f32[50257,768]; tb=true"));
  EXPECT_TRUE(copies_of("a: f16[8192,768], b: f16[50257,768]; tb=true"));
  // An odd number of tokens is not the length of any column.
  EXPECT_FALSE(copies_of("a: bf16[8191,768], b: bf16[50304,768]; tb=true"));
  EXPECT_FALSE(copies_of("a: bf16[8191,50304], b: bf16[8191,768]; ta=true"));
  // 136 multiplications per copied element, and 64; just too few in total, and enough.
  EXPECT_TRUE(copies_of("a: bf16[50000,136], b: bf16[50257,136]; tb=true"));
  EXPECT_FALSE(copies_of("a: bf16[50000,64], b: bf16[50257,64]; tb=true"));
  EXPECT_FALSE(copies_of("a: bf16[512,512], b: bf16[2047,512]; tb=true"));
  EXPECT_TRUE(copies_of("a: bf16[512,512], b: bf16[2049,512]; tb=true"));
  // More than 2^64 multiplications.
  EXPECT_TRUE(copies_of("a: bf16[4194304,4194304], b: bf16[4194305,4194304]; tb=true"));
}

}  // namespace
}  // namespace weft::cuda
