#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "plan/check.h"
#include "plan/text.h"
#include "runtime/cpu/device.h"
#include "runtime/null/device.h"
#include "support/tiny_plan.h"
#include "support/user_error.h"

namespace weft {
namespace {

// y = 2 x on compute and comm, then their sum: y = 2 (2 x) + 2 x.
constexpr std::string_view kTwoStreams = R"(plan two_streams
backend test
streams compute, comm
events 2
arena 1536
persistent 512
buffer b0 input 64 at 0 persistent "x"
buffer b1 activation 64 at 512 last 0..3 "a"
buffer b2 activation 64 at 768 last 1..3 "b"
buffer b3 output 64 at 256 persistent "y"
buffer b4 workspace 128 at 1024 last 1..1 "w"
input "x" b0: f32[16]
output "y" b3: f32[16]
program last
step 0 compute gelu.KERNEL0(b0: f32[16]) -> b1: f32[16] signal e0 # layers.0 fwd
step 1 comm gelu.KERNEL1(b1: f32[16]) -> b2: f32[16] workspace b4 wait e0 signal e1 # layers.1 fwd
step 2 compute gelu.double(b0: f32[16]) -> b1: f32[16] wait e1 # fwd
step 3 compute add.sum(b1: f32[16], b2: f32[16]) -> b3: f32[16] # loss bwd
)";

Plan two_streams(std::string_view kernel0 = "double", std::string_view kernel1 = "double") {
  std::string text(kTwoStreams);
  text.replace(text.find("KERNEL0"), 7, kernel0);
  text.replace(text.find("KERNEL1"), 7, kernel1);
  Plan plan = parse_plan(text);
  check_plan(plan);
  return plan;
}

void double_launch(const Launch& launch) {
  for (int64_t i = 0; i < launch.operands[0].elements(); ++i) {
    launch.results[0].as<float>()[i] = 2 * launch.operands[0].as<float>()[i];
  }
}

void sum_launch(const Launch& launch) {
  for (int64_t i = 0; i < launch.operands[0].elements(); ++i) {
    launch.results[0].as<float>()[i] =
        launch.operands[0].as<float>()[i] + launch.operands[1].as<float>()[i];
  }
}

// Whether "follow" and "lead" have started; each waits a while for the other.
std::atomic<bool> lead_begun{false};
std::atomic<bool> follow_begun{false};

bool await(const std::atomic<bool>& flag, int64_t milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!flag && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return flag;
}

// Leaves ample time for a follower that does not wait, then doubles; 1000 when one came early.
void lead_launch(const Launch& launch) {
  lead_begun = true;
  const bool early = await(follow_begun, 50);
  double_launch(launch);
  if (early) launch.results[0].as<float>()[0] = 1000;
}

void follow_launch(const Launch& launch) {
  follow_begun = true;
  double_launch(launch);
}

// Each of the two needs the other to have started.
void wait_for_other_a_launch(const Launch&) {
  lead_begun = true;
  if (!await(follow_begun, 20000)) throw DeviceError("the streams did not run concurrently");
}

void wait_for_other_b_launch(const Launch&) {
  follow_begun = true;
  if (!await(lead_begun, 20000)) throw DeviceError("the streams did not run concurrently");
}

// The origin of the launch, as the kernel sees it.
std::string seen_place;

std::vector<Kernel> test_kernels() {
  const auto row = [](std::string_view op, std::string_view name, void (*launch)(const Launch&)) {
    Kernel kernel;
    kernel.op = op;
    kernel.name = name;
    kernel.launch = launch;
    return kernel;
  };
  return {row("gelu", "double", double_launch),
          row("gelu", "lead", lead_launch),
          row("gelu", "follow", follow_launch),
          row("gelu", "wait_for_other_a", wait_for_other_a_launch),
          row("gelu", "wait_for_other_b", wait_for_other_b_launch),
          row("gelu", "user_error",
              [](const Launch&) { throw UserError(ExitCode::InputFile, "token 70 of 65"); }),
          row("gelu", "device_error",
              [](const Launch&) { throw DeviceError("no answer", ExitCode::OutOfMemory); }),
          row("gelu", "look",
              [](const Launch& launch) {
                seen_place = launch.where;
                double_launch(launch);
              }),
          row("gelu", "bug", [](const Launch&) { throw std::out_of_range("vector::at"); }),
          row("add", "sum", sum_launch)};
}

// A host device that counts allocated bytes.
class CountingDevice : public HostDevice {
 public:
  CountingDevice() : HostDevice(1) {}
  void* allocate(int64_t bytes) override {
    ++allocations;
    allocated += bytes;
    return HostDevice::allocate(bytes);
  }
  void release(void* memory) override {
    --allocations;
    HostDevice::release(memory);
  }
  int64_t allocations = 0;
  int64_t allocated = 0;
};

// A host device that is asked to record but does not.
class AskedDevice : public HostDevice {
 public:
  AskedDevice() : HostDevice(1) {}
  std::unique_ptr<Recording> record(std::string_view name, std::span<const std::unique_ptr<Stream>>,
                                    const std::function<void()>&) override {
    asked.emplace_back(name);
    return nullptr;
  }
  std::vector<std::string> asked;
};

std::vector<float> run_once(Executor& executor) {
  std::vector<float> x(16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  executor.write("x", x.data(), 64);
  executor.run(ProgramKind::Last);
  std::vector<float> y(16);
  executor.read("y", y.data(), 64);
  return y;
}

std::vector<float> expected() {
  std::vector<float> y(16);
  for (size_t i = 0; i < y.size(); ++i) y[i] = 6 * static_cast<float>(i);
  return y;
}

TEST(Executor, RunsAPlanOnTwoStreams) {
  const Plan plan = two_streams();
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(2);
  Executor executor(plan, device, kernels);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(run_once(executor), expected());
}

TEST(Executor, EventsOrderStreams) {
  lead_begun = follow_begun = false;
  const Plan plan = two_streams("lead", "follow");
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  Executor executor(plan, device, kernels);
  EXPECT_EQ(run_once(executor), expected());
  EXPECT_TRUE(follow_begun);
}

TEST(Executor, StreamsWithoutEventsRunSideBySide) {
  lead_begun = follow_begun = false;
  Plan plan = two_streams("wait_for_other_a", "wait_for_other_b");
  for (Step& step : plan.programs[static_cast<size_t>(ProgramKind::Last)]) {
    step.waits.clear();
    step.signal = -1;
  }
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  Executor executor(plan, device, kernels);
  EXPECT_NO_THROW(executor.run(ProgramKind::Last));
}

// The first step takes 50 ms; nothing follows it before it is timed.
TEST(Executor, TimesEachStepAlone) {
  lead_begun = follow_begun = false;
  const Plan plan = two_streams("lead", "follow");
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  Executor executor(plan, device, kernels);
  const std::vector<double> seconds = executor.time_steps(ProgramKind::Last);
  ASSERT_EQ(seconds.size(), 4u);
  EXPECT_GE(seconds[0], 0.05);
  for (const double step : seconds) EXPECT_GT(step, 0);
  EXPECT_TRUE(follow_begun);
}

TEST(Executor, AsksOnceToRecordAProgramByItsName) {
  const Plan plan = two_streams();
  const std::vector<Kernel> kernels = test_kernels();
  AskedDevice device;
  Executor executor(plan, device, kernels);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run_once(executor), expected());
  EXPECT_EQ(device.asked, std::vector<std::string>{"last"});
}

TEST(Executor, AllocatesTheArenaAndNothingElse) {
  const Plan plan = two_streams();
  const std::vector<Kernel> kernels = test_kernels();
  CountingDevice device;
  {
    Executor executor(plan, device, kernels);
    run_once(executor);
    EXPECT_EQ(executor.allocated_bytes(), plan.arena_bytes);
    EXPECT_EQ(device.allocated, plan.arena_bytes);
    EXPECT_EQ(device.allocations, 1);
  }
  EXPECT_EQ(device.allocations, 0);
}

TEST(Executor, PersistentMemoryStartsAtZero) {
  const Plan plan = two_streams();
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  Executor executor(plan, device, kernels);
  std::vector<float> y(16, 1.0f);
  executor.read("y", y.data(), 64);
  EXPECT_EQ(y, std::vector<float>(16, 0.0f));
}

TEST(Executor, ErrorsNameTheStepAndKeepTheirKind) {
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  const Plan user = two_streams("user_error");
  expect_user_error(ExitCode::InputFile, "plan step 0 gelu (last: layers.0 fwd): token 70 of 65",
                    [&] {
                      Executor executor(user, device, kernels);
                      executor.run(ProgramKind::Last);
                    });
  const Plan broken = two_streams("double", "device_error");
  try {
    Executor(broken, device, kernels).run(ProgramKind::Last);
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "plan step 1 gelu (last: layers.1 fwd): no answer");
    EXPECT_EQ(error.code(), ExitCode::OutOfMemory);
  }
  const Plan bug = two_streams("double", "bug");
  try {
    Executor(bug, device, kernels).run(ProgramKind::Last);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "plan step 1 gelu (last: layers.1 fwd): vector::at");
  }
}

TEST(Executor, LeavesTheChannelOfTheHostAlone) {
  Plan plan = two_streams();
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  plan.streams.assign(kStreamNames.begin(), kStreamNames.end());
  EXPECT_NO_THROW(Executor(plan, device, kernels));
  plan.streams.emplace_back("host");
  EXPECT_THROW(Executor(plan, device, kernels), InternalError);
}

TEST(Executor, ALaunchKnowsItsPlaceInThePlan) {
  const Plan plan = two_streams("double", "look");
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  Executor executor(plan, device, kernels);
  EXPECT_EQ(run_once(executor), expected());
  EXPECT_EQ(seen_place, "plan step 1 gelu (last: layers.1 fwd)");
}

TEST(Executor, RunsAgainAfterAnError) {
  Plan plan = two_streams();
  plan.programs[static_cast<size_t>(ProgramKind::Micro)] = {
      plan.program(ProgramKind::Last).front()};
  plan.programs[static_cast<size_t>(ProgramKind::Micro)].front().kernel = "bug";
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  Executor executor(plan, device, kernels);
  EXPECT_THROW(executor.run(ProgramKind::Micro), InternalError);
  EXPECT_EQ(run_once(executor), expected());
}

TEST(Executor, RefusesAPlanWithAKernelItDoesNotHave) {
  const Plan plan = two_streams("tensor_core");
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  expect_user_error(
      ExitCode::Config,
      "plan step 0 gelu (last: layers.0 fwd): the backend has no kernel gelu.tensor_core; "
      "the plan was made for another backend or build",
      [&] { Executor(plan, device, kernels); });
}

TEST(Executor, ChecksNamesAndSizesOfWhatTheHostBrings) {
  const Plan plan = two_streams();
  const std::vector<Kernel> kernels = test_kernels();
  HostDevice device(1);
  Executor executor(plan, device, kernels);
  float value = 0;
  EXPECT_THROW(executor.write("z", &value, 4), InternalError);
  EXPECT_THROW(executor.write("x", &value, 4), InternalError);
  EXPECT_THROW(executor.read("y", &value, 4), InternalError);
}

TEST(NullDevice, CountsAndComputesNothing) {
  const Plan plan = tiny_plan();
  std::vector<Kernel> kernels = plain_kernels();
  for (Kernel& kernel : kernels) {
    kernel.launch = [](const Launch&) { FAIL() << "a kernel ran"; };
  }
  NullDevice device;
  {
    Executor executor(plan, device, kernels);
    EXPECT_EQ(device.counts().allocated_bytes, plan.arena_bytes);
    executor.run(ProgramKind::Last);
    float loss = 1;
    executor.read("loss", &loss, 4);
    EXPECT_EQ(loss, 0);
  }
  double seconds = 0;
  double flops = 0;
  for (const Step& step : plan.program(ProgramKind::Last)) {
    seconds += step.seconds;
    flops += step.flops;
  }
  EXPECT_EQ(device.counts().launches, 12);
  EXPECT_EQ(device.counts().seconds, seconds);
  EXPECT_EQ(device.counts().flops, flops);
  EXPECT_EQ(device.counts().copied_bytes, 4);
  EXPECT_EQ(device.counts().allocated_bytes, 0);
}

TEST(NullDevice, HoldsArenasLargerThanAnyMemory) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer leaves too few addresses";
#endif
  NullDevice device;
  void* memory = device.allocate(int64_t{16} << 40);
  EXPECT_NE(memory, nullptr);
  device.release(memory);
}

}  // namespace
}  // namespace weft
