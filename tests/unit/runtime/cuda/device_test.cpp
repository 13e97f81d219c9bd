// The CUDA backend through its interfaces alone, so that the same file serves every build: without
// CUDA all is skipped, without a GPU what needs one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "runtime/cuda/backend.h"

namespace weft {
namespace {

// A device, or nullptr when there is no GPU.
std::unique_ptr<Device> device_if_any() {
  try {
    return cuda_backend()->make_device({});
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::Config);
    EXPECT_TRUE(std::string_view(error.what()).starts_with("cuda: no GPU found (")) << error.what();
    EXPECT_TRUE(std::string_view(error.what()).ends_with("); use device.backend = \"cpu\""))
        << error.what();
    return nullptr;
  }
}

const Kernel* find_kernel(std::string_view op) {
  for (const Kernel& kernel : cuda_backend()->kernels()) {
    if (kernel.op == op) return &kernel;
  }
  return nullptr;
}

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_backend() == nullptr) GTEST_SKIP() << "built without CUDA";
  }
};

class CudaDeviceTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
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

// Looks up one id in a table of 4 rows.
std::vector<float> look_up(Device& device, int32_t id) {
  const Call call = embedding_call();
  const auto stream = device.make_stream("compute");
  const std::vector<float> table = {0, 1, 10, 11, 20, 21, 30, 31};
  char* memory = static_cast<char*>(device.allocate(768));
  stream->copy_in(memory, &id, sizeof id);
  stream->copy_in(memory + 256, table.data(), 32);
  const Launch launch{.call = &call,
                      .operands = {{memory, DType::I32, {1}}, {memory + 256, DType::F32, {4, 2}}},
                      .results = {{memory + 512, DType::F32, {1, 2}}},
                      .stream = stream.get()};
  stream->launch(*find_kernel("embedding"), launch);
  std::vector<float> row(2);
  stream->copy_out(row.data(), memory + 512, 8);
  stream->synchronize();
  device.release(memory);
  return row;
}

TEST_F(CudaTest, EveryOpHasAPlainKernel) {
  for (const OpDef* op : all_ops()) {
    if (op->traits.source || op->traits.collective) continue;  // collectives: the transports
    const Kernel* kernel = find_kernel(op->name());
    ASSERT_NE(kernel, nullptr) << op->name();
    EXPECT_EQ(kernel->name, cat("plain_", op->name()));
  }
}

TEST_F(CudaTest, RefusesWhatNoKernelComputes) {
  Call call = embedding_call();
  EXPECT_TRUE(find_kernel("embedding")->supports(call).allowed);
  call.operands[1].dtype = call.results[0].dtype = DType::F64;
  EXPECT_EQ(find_kernel("embedding")->supports(call).why, "f64 is not supported");
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

// The error ends the GPU context of the process, hence a process of its own.
TEST_F(CudaDeviceTest, AnErrorOfAKernelShowsAtSynchronize) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto look_up_bad_id = [] {
    try {
      const auto device = cuda_backend()->make_device({});
      look_up(*device, 4);
    } catch (const DeviceError& error) {
      std::cerr << error.what() << std::endl;
      std::_Exit(3);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(look_up_bad_id(), ::testing::ExitedWithCode(3), "cuda: .*failed: .*");
}

}  // namespace
}  // namespace weft
