#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/cpu/device.h"

namespace weft {
namespace {

Decision anything(const Call&) {
  return Decision::yes();
}

// Adds 1 to every element of operand 0, slowly, so that a missing wait shows.
void add_one_slowly(const Launch& launch) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  int64_t* data = launch.operands[0].as<int64_t>();
  team(launch).run(launch.operands[0].elements(), [&](int64_t i) { data[i] += 1; });
}

void fail(const Launch&) {
  throw std::runtime_error("kernel failed");
}

const Kernel kAddOne{"add_one", "slow", anything, nullptr, add_one_slowly};
const Kernel kFail{"fail", "fail", anything, nullptr, fail};

struct HostDeviceTest : testing::Test {
  std::unique_ptr<Device> device = make_host_device({.threads = 2});
  std::unique_ptr<Stream> compute = device->make_stream("compute");
  std::unique_ptr<Stream> side = device->make_stream("side");
  std::vector<int64_t> data = std::vector<int64_t>(8, 0);

  Launch launch_on(Stream& stream) {
    Launch launch;
    launch.operands.push_back({data.data(), DType::I32, {8}});
    launch.stream = &stream;
    return launch;
  }
};

TEST_F(HostDeviceTest, DescribesItself) {
  EXPECT_EQ(device->description(), "cpu, 2 threads");
  EXPECT_EQ(make_host_device({.threads = 1})->description(), "cpu, 1 thread");
}

TEST_F(HostDeviceTest, MemoryIsAlignedAndRefusedInWords) {
  for (const int64_t bytes : {0, 1, 64, 1000}) {
    void* memory = device->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    device->release(memory);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  try {
    device->release(device->allocate(int64_t{1} << 60));
    FAIL() << "an exbibyte was allocated";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::OutOfMemory);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976 bytes"), std::string::npos)
        << error.what();
  }
#endif
}

TEST_F(HostDeviceTest, WorkOfOneStreamRunsInOrder) {
  const Launch launch = launch_on(*compute);
  const std::vector<int64_t> start(8, 40);
  std::vector<int64_t> end(8, 0);
  compute->copy_in(data.data(), start.data(), 64);
  compute->launch(kAddOne, launch);
  compute->launch(kAddOne, launch);
  compute->copy_out(end.data(), data.data(), 64);
  compute->zero(data.data(), 32);
  compute->synchronize();
  EXPECT_EQ(end, std::vector<int64_t>(8, 42));
  EXPECT_EQ(data, (std::vector<int64_t>{0, 0, 0, 0, 42, 42, 42, 42}));
}

TEST_F(HostDeviceTest, EventsOrderTwoStreamsAgainAndAgain) {
  const auto forth = device->make_event();
  const auto back = device->make_event();
  const Launch on_compute = launch_on(*compute);
  const Launch on_side = launch_on(*side);
  for (int round = 0; round < 10; ++round) {
    compute->wait(*back);
    compute->launch(kAddOne, on_compute);
    compute->signal(*forth);
    side->wait(*forth);
    side->launch(kAddOne, on_side);
    side->signal(*back);
  }
  side->synchronize();
  compute->synchronize();
  EXPECT_EQ(data, std::vector<int64_t>(8, 20));
}

TEST_F(HostDeviceTest, KeepsTheFirstErrorSkipsTheRestAndRecovers) {
  const auto event = device->make_event();
  const Launch launch = launch_on(*compute);
  compute->launch(kFail, launch);
  compute->launch(kAddOne, launch);
  compute->signal(*event);
  side->wait(*event);
  side->synchronize();
  EXPECT_THROW(compute->synchronize(), std::runtime_error);
  EXPECT_EQ(data, std::vector<int64_t>(8, 0));
  compute->launch(kAddOne, launch);
  compute->synchronize();
  EXPECT_EQ(data, std::vector<int64_t>(8, 1));
}

TEST_F(HostDeviceTest, ALaunchWithoutItsStreamIsOurBug) {
  EXPECT_THROW(team(Launch{}), InternalError);
}

}  // namespace
}  // namespace weft
