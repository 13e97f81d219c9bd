// Tests the CUDA backend only through its interfaces, so that the same file works in every build:
// tests that need a GPU are skipped without one. The table can be read everywhere.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <vector>

#include "base/error.h"
#include "graph/samples.h"
#include "runtime/cuda/device/backend.h"

namespace weft {
namespace {

// A device, or nullptr when there is no GPU.
std::unique_ptr<Device> device_if_any() {
  try {
    return cuda_backend().make_device({});
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::Config);
    const std::string_view message = error.what();
    EXPECT_TRUE(message.starts_with("cuda: no GPU found (") ||
                message.starts_with("cuda: this build can plan for a GPU but not run on one; "))
        << message;
    EXPECT_TRUE(message.ends_with("use the backend cpu")) << message;
    return nullptr;
  }
}

// The last row of an op, which accepts every call.
const Kernel* plain_kernel(std::string_view op) {
  const Kernel* found = nullptr;
  for (const Kernel& kernel : cuda_backend().kernels()) {
    if (kernel.op == op) found = &kernel;
  }
  return found;
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = device_if_any();
    if (!device_) GTEST_SKIP() << "no GPU";
  }

  std::unique_ptr<Device> device_;
};

Call embedding_call() {
  return {.op = find_op("embedding"),
          .operands = {{DType::I32, {1}, {}}, {DType::F32, {4, 2}, {}}},
          .results = {{DType::F32, {1, 2}, {}}},
          .attrs = {}};
}

constexpr std::string_view kPlace = "plan step 3 embedding (last: tok_embeddings fwd)";

enum class Pace { Queued, Recorded, StepByStep };

// Looks up one id in a table of 4 rows.
std::vector<float> look_up(Device& device, int32_t id, Pace pace = Pace::Queued) {
  const Call call = embedding_call();
  const Kernel& kernel = *plain_kernel("embedding");
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(device.make_stream("compute"));
  Stream& stream = *streams.front();
  const std::vector<float> table = {0, 1, 10, 11, 20, 21, 30, 31};
  char* memory = static_cast<char*>(device.allocate(768));
  stream.copy_in(memory, &id, sizeof id);
  stream.copy_in(memory + 256, table.data(), 32);
  const Launch launch{.call = &call,
                      .operands = {{memory, DType::I32, {1}}, {memory + 256, DType::F32, {4, 2}}},
                      .results = {{memory + 512, DType::F32, {1, 2}}},
                      .stream = &stream,
                      .where = kPlace};
  std::unique_ptr<Recording> recording;
  if (pace == Pace::Queued) {
    stream.launch(kernel, launch);
  } else if (pace == Pace::Recorded) {
    recording = device.record("last", streams, [&] { stream.launch(kernel, launch); });
    recording->replay();
  } else {
    stream.time(kernel, launch);
  }
  std::vector<float> row(2);
  stream.copy_out(row.data(), memory + 512, 8);
  stream.synchronize();
  device.release(memory);
  return row;
}

TEST(CudaTable, EndsWithAKernelForEveryCallOfAnOp) {
  for (const OpDef* op : all_ops()) {
    if (op->traits.source || op->traits.collective) continue;  // collectives: the transports
    const Kernel* kernel = plain_kernel(op->name());
    ASSERT_NE(kernel, nullptr) << op->name();
    for (const Call& call : parse_samples(*op, op->samples)) {
      EXPECT_TRUE(kernel->supports(call).allowed) << kernel->name << kernel->supports(call).why;
    }
  }
}

TEST(CudaTable, RefusesWhatNoKernelComputes) {
  Call call = embedding_call();
  EXPECT_TRUE(plain_kernel("embedding")->supports(call).allowed);
  call.operands[1].dtype = call.results[0].dtype = DType::F64;
  EXPECT_EQ(plain_kernel("embedding")->supports(call).why, "f64 is not supported");
}

// The kernel that the planner chooses for the sample.
std::string_view chosen(std::string_view op, std::string_view sample) {
  const Call call = parse_samples(*find_op(op), sample).at(0);
  return choose_kernel(cuda_backend().kernels(), call, "cuda", "y").name;
}

TEST(CudaTable, PrefersTheFastKernelWhereItFits) {
  EXPECT_EQ(chosen("matmul", "a: bf16[9,17], b: bf16[17,5]"), "cublaslt_matmul");
  EXPECT_EQ(chosen("matmul", "a: bf16[9,17], b: bf16[17,5], bias: bf16[5]; out=\"f32\""),
            "plain_matmul");
  EXPECT_EQ(chosen("attention", "qkv: bf16[2,64,384]; heads=4, kv_heads=1"), "cudnn_attention");
  EXPECT_EQ(chosen("rms_norm", "x: bf16[3,8192], w: bf16[8192]"), "row_rms_norm");
  EXPECT_EQ(chosen("rms_norm", "x: bf16[3,8200], w: bf16[8200]"), "plain_rms_norm");
  EXPECT_EQ(chosen("add", "a: f32[3,7], b: f32[3,7]"), "plain_add");
  EXPECT_EQ(chosen("add", "a: f32[3,8], b: f32[3,8]"), "vector_add");
  EXPECT_EQ(chosen("dropout", "x: f32[2,4,6], rng: i32[4]; rate=0.1, stream=7"), "vector_dropout");
  EXPECT_EQ(chosen("dropout", "x: f32[4,2,3], rng: i32[4]; rate=0.1, stream=7"), "plain_dropout");
}

// Libraries and Hopper's units first, then tiles for what they refuse: f32, dropout, documents, any
// length, heads of a multiple of 8 up to 128.
TEST(CudaTable, AttentionIsPlainForOddHeadsOnly) {
  const auto attention = [](std::string_view sample) { return chosen("attention", sample); };
  EXPECT_EQ(attention("qkv: f32[2,64,384]; heads=4, kv_heads=1"), "tiled_attention");
  EXPECT_EQ(attention("qkv: bf16[2,65,384]; heads=4, kv_heads=1"), "tiled_attention");
  EXPECT_EQ(attention("qkv: bf16[2,64,144]; heads=1, kv_heads=1"), "tiled_attention");
  EXPECT_EQ(attention("qkv: bf16[2,64,384], rng: i32[4]; heads=4, kv_heads=1, dropout=0.1"),
            "tiled_attention");
  EXPECT_EQ(attention("qkv: bf16[2,64,60]; heads=1, kv_heads=1"), "plain_attention");
  EXPECT_EQ(attention("qkv: bf16[2,64,408]; heads=1, kv_heads=1"), "plain_attention");
  EXPECT_EQ(chosen("document_attention",
                   "qkv: bf16[2,64,384], positions: i32[2,64]; heads=4, kv_heads=1"),
            "tiled_document_attention");
  EXPECT_EQ(chosen("attention_grad",
                   "dy: f32[1,9,8], qkv: f32[1,9,24], y: f32[1,9,8], lse: f32[1,1,9]; heads=1, "
                   "kv_heads=1"),
            "tiled_attention_grad");
  EXPECT_EQ(chosen("document_attention_grad",
                   "dy: bf16[1,9,20], qkv: bf16[1,9,60], y: bf16[1,9,20], lse: f32[1,1,9], "
                   "positions: i32[1,9]; heads=1, kv_heads=1"),
            "plain_document_attention_grad");
}

// The rows that accept the gradient of attention in Llama 1B, in order of preference: one f32 copy
// of dq is 128 MiB; ds of one key-value head is 512 MiB, of which cuDNN processes four at once.
TEST(CudaTable, AttentionGradientHasBoundedMemory) {
  const Call call = parse_samples(*find_op("attention_grad"),
                                  "dy: bf16[2,8192,2048], qkv: bf16[2,8192,3072], "
                                  "y: bf16[2,8192,2048], lse: f32[2,32,8192]; heads=32, kv_heads=8")
                        .at(0);
  std::map<std::string_view, int64_t> mebibytes;
  for (const Kernel& kernel : cuda_backend().kernels()) {
    if (kernel.op == call.op->name() && kernel.supports(call).allowed) {
      mebibytes[kernel.name] = kernel.workspace(call) >> 20;
    }
  }
  EXPECT_EQ(mebibytes["hopper_attention_grad"], 132);
  EXPECT_EQ(mebibytes["cudnn_attention_grad"], 2116);
  EXPECT_EQ(mebibytes["tiled_attention_grad"], 2);
}

TEST_F(CudaDeviceTest, CopiesInAndOut) {
  const auto stream = device_->make_stream("compute");
  std::vector<int> values = {1, 2, 3, 4};
  void* memory = device_->allocate(16);
  stream->copy_in(memory, values.data(), 16);
  stream->zero(static_cast<char*>(memory) + 4, 4);
  stream->copy_out(values.data(), memory, 16);
  stream->synchronize();
  EXPECT_EQ(values, (std::vector<int>{1, 0, 3, 4}));
  device_->release(memory);
}

// Three times through each of the two page-locked blocks, and a remainder.
TEST_F(CudaDeviceTest, LargeCopiesComeBackComplete) {
  const auto stream = device_->make_stream("compute");
  std::vector<uint32_t> values((int64_t{48} << 20) / 4 + 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i * 2654435761u);
  const auto bytes = static_cast<int64_t>(values.size() * 4);
  void* memory = device_->allocate(bytes);
  stream->copy_in(memory, values.data(), bytes);
  std::vector<uint32_t> found(values.size());
  stream->copy_out(found.data(), memory, bytes);
  stream->synchronize();
  EXPECT_EQ(found, values);
  device_->release(memory);
}

TEST_F(CudaDeviceTest, AnEventOrdersTwoStreams) {
  constexpr int64_t kBytes = int64_t{256} << 20;  // long enough to lose a race without the event
  const auto first = device_->make_stream("first");
  const auto second = device_->make_stream("second");
  const auto event = device_->make_event();
  char* memory = static_cast<char*>(device_->allocate(kBytes));
  const int one = 1;
  int found = -1;
  for (int i = 0; i < 16; ++i) first->zero(memory, kBytes);
  first->copy_in(memory, &one, sizeof one);
  first->signal(*event);
  second->wait(*event);
  second->copy_out(&found, memory, sizeof found);
  second->synchronize();
  EXPECT_EQ(found, 1);
  first->synchronize();
  device_->release(memory);
}

TEST_F(CudaDeviceTest, ReplaysWhatItRecorded) {
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(device_->make_stream("compute"));
  streams.push_back(device_->make_stream("gather"));
  char* memory = static_cast<char*>(device_->allocate(512));
  const std::vector<int> ones(128, -1);
  const auto recording = device_->record("last", streams, [&] {
    streams[0]->zero(memory, 256);
    streams[1]->zero(memory + 256, 256);
  });
  ASSERT_NE(recording, nullptr);
  for (int run = 0; run < 2; ++run) {
    std::vector<int> found = ones;
    streams[0]->copy_in(memory, ones.data(), 512);
    recording->replay();
    streams[0]->copy_out(found.data(), memory, 512);
    streams[0]->synchronize();
    EXPECT_EQ(found, std::vector<int>(128, 0));
  }
  device_->release(memory);
}

TEST_F(CudaDeviceTest, DoesNotRecordWhenToldNotTo) {
  const auto device = cuda_backend().make_device({.record = false});
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(device->make_stream("compute"));
  EXPECT_EQ(device->record("last", streams, [] { FAIL() << "queued"; }), nullptr);
}

// The host waits in the middle of it, which no recording allows; the other stream's errors are
// consequences.
TEST_F(CudaDeviceTest, ASpoiledRecordingSaysWhatSpoiledIt) {
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(device_->make_stream("compute"));
  streams.push_back(device_->make_stream("gather"));
  void* memory = device_->allocate(256);
  int value = 0;
  streams[1]->copy_out(&value, memory, sizeof value);  // allocates the staging memory for copies
  streams[1]->synchronize();
  try {
    device_->record("last", streams, [&] { streams[1]->copy_out(&value, memory, sizeof value); });
    FAIL() << "recorded";
  } catch (const DeviceError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("cuda: copy of 4 bytes from the GPU"))
        << error.what();
  }
  device_->release(memory);
  EXPECT_EQ(look_up(*device_, 2), (std::vector<float>{20, 21}));
}

// A matmul of 1 + 2^-20 and 1, which tf32 rounds to 1.
float matmul(const DeviceOptions& options) {
  const auto device = cuda_backend().make_device(options);
  const Call call = parse_samples(*find_op("matmul"), "a: f32[16,16], b: f32[16,16]").at(0);
  const Kernel& kernel = choose_kernel(cuda_backend().kernels(), call, "cuda", "y");
  const auto stream = device->make_stream("compute");
  std::vector<float> left(256, 0), right(256, 0), result(256, 0);
  for (size_t i = 0; i < 16; ++i) left[i * 17] = right[i * 17] = 1;
  left[0] = 1 + 0x1p-20F;
  const int64_t workspace = kernel.workspace(call);
  char* memory = static_cast<char*>(device->allocate(3 * 1024 + workspace));
  stream->copy_in(memory, left.data(), 1024);
  stream->copy_in(memory + 1024, right.data(), 1024);
  stream->launch(
      kernel, {.call = &call,
               .operands = {{memory, DType::F32, {16, 16}}, {memory + 1024, DType::F32, {16, 16}}},
               .results = {{memory + 2048, DType::F32, {16, 16}}},
               .workspace = memory + 3072,
               .workspace_bytes = workspace,
               .stream = stream.get()});
  stream->copy_out(result.data(), memory + 2048, 1024);
  stream->synchronize();
  device->release(memory);
  return result[0];
}

TEST_F(CudaDeviceTest, RoundsFactorsToTf32OnlyWhenAsked) {
  EXPECT_EQ(matmul({}), 1 + 0x1p-20F);
  EXPECT_EQ(matmul({.tf32 = true}), 1);
}

TEST_F(CudaDeviceTest, SaysHowMuchMemoryIsMissing) {
  try {
    device_->allocate(int64_t{1} << 50);
    FAIL() << "allocated 1 PiB";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::OutOfMemory);
    EXPECT_TRUE(std::string_view(error.what()).starts_with("cuda: out of memory: the plan needs "))
        << error.what();
  }
  EXPECT_EQ(look_up(*device_, 2), (std::vector<float>{20, 21}));
}

// The error destroys the GPU context of the process, hence a separate process.
TEST_F(CudaDeviceTest, AnErrorOfAKernelShowsAtSynchronizeAndNamesItsPlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto look_up_bad_id = [](Pace pace) {
    try {
      const auto device = cuda_backend().make_device({});
      look_up(*device, 0);  // loads the kernel, which a recording may not
      look_up(*device, 4, pace);
    } catch (const DeviceError& error) {
      std::cerr << error.what() << std::endl;
      std::_Exit(3);
    }
    std::_Exit(0);
  };
  const std::string work =
      "kernel plain_embedding in plan step 3 embedding \\(last: tok_embeddings fwd\\)";
  EXPECT_EXIT(look_up_bad_id(Pace::Queued), ::testing::ExitedWithCode(3),
              "cuda: .*" + work + ".* failed: .*");
  EXPECT_EXIT(look_up_bad_id(Pace::Recorded), ::testing::ExitedWithCode(3),
              "cuda: .*program last .* failed: .*");
  EXPECT_EXIT(look_up_bad_id(Pace::StepByStep), ::testing::ExitedWithCode(3),
              "cuda: .*" + work + " failed: .*");
}

}  // namespace
}  // namespace weft
