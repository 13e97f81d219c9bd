#include "runtime/comm/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

namespace weft {
namespace {

// A job of two ranks in memory of this test; rank 1 has no process, so it never computes.
class DeviceWaiting : public testing::Test {
 protected:
  DeviceWaiting() : memory_(static_cast<size_t>(Control::bytes(2)) / sizeof(Line) + 1) {
    control_ = Control::start(memory_.data(), 2);
    control_.at(0).process = ::getpid();
    control_.at(1).process = std::numeric_limits<int32_t>::max();
    for (int64_t rank = 0; rank < 2; ++rank) control_.set_state(rank, RankState::Running);
  }

  // The state of a device that has been in a collective since now.
  static DeviceLook blocked() { return {.waiting_since = monotonic_ns(), .inside = true}; }

  // What ends a wait of rank 0 that sees this state of its device; looks for ten times the timeout.
  std::string cause(double timeout_seconds, const std::function<DeviceLook()>& seen,
                    std::function<std::string()> launcher_loss = {}) {
    const WaitOptions options{.timeout_seconds = timeout_seconds,
                              .launcher_loss = std::move(launcher_loss)};
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(10 * timeout_seconds);
    try {
      while (std::chrono::steady_clock::now() < end) {
        wait_.look(control_, 0, seen(), options);
        std::this_thread::sleep_for(between_looks_);
      }
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  }
  std::string cause(double timeout_seconds, const DeviceLook& seen,
                    std::function<std::string()> launcher_loss = {}) {
    return cause(
        timeout_seconds, [&] { return seen; }, std::move(launcher_loss));
  }

  std::chrono::milliseconds between_looks_{5};
  struct alignas(64) Line {
    char bytes[64] = {};
  };
  std::vector<Line> memory_;
  Control control_;
  DeviceWait wait_;
};

TEST_F(DeviceWaiting, ADeviceThatComputesIsASignOfLife) {
  control_.at(0).sign_of_life = 1;
  EXPECT_EQ(cause(0.1, {.waiting_since = monotonic_ns()}), "");
  EXPECT_GT(control_.at(0).sign_of_life.load(), 1);
}

TEST_F(DeviceWaiting, ASilentPeerOfABlockedDeviceHangs) {
  control_.report_progress(0, 1, "plan step 3 all_gather");
  const std::string text = cause(0.1, blocked());
  EXPECT_TRUE(text.starts_with("rank 1 hangs: no heartbeat for ")) << text;
  EXPECT_NE(text.find("rank 0 waits before the first training step, in plan step 3 all_gather"),
            std::string::npos)
      << text;
  EXPECT_EQ(control_.abort_code(), ExitCode::Hang);
}

// On a busy machine a host runs only now and then.
TEST_F(DeviceWaiting, AHostThatSeldomLooksFindsTheHangToo) {
  between_looks_ = std::chrono::milliseconds(150);
  const std::string text = cause(0.2, blocked());
  EXPECT_TRUE(text.starts_with("rank 1 hangs: no heartbeat for ")) << text;
}

TEST_F(DeviceWaiting, EveryWaitHasTheFullTimeout) {
  EXPECT_EQ(cause(0.1, [] { return blocked(); }), "");
}

TEST_F(DeviceWaiting, ADeviceThatMakesProgressHasTheFullTimeoutAgain) {
  DeviceLook seen = blocked();
  seen.got_further = true;
  EXPECT_EQ(cause(0.1, seen), "");
}

TEST_F(DeviceWaiting, APeerThatLeftIsNamed) {
  control_.set_state(1, RankState::Done);
  const std::string text = cause(0.1, blocked());
  EXPECT_TRUE(text.starts_with("rank 1 ended while rank 0 waits for it")) << text;
}

TEST_F(DeviceWaiting, RanksThatUseTheirProcessorsAndGetNoFurtherStandStill) {
  control_.at(1).process = ::getpid();  // this test computes
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) {
    }
  });
  // Long enough for a busy machine to give this process its share before the timeout.
  const std::string text = cause(1.5, blocked());
  stop = true;
  busy.join();
  EXPECT_TRUE(text.starts_with("no rank makes progress: rank 0")) << text;
}

TEST_F(DeviceWaiting, AnAbortEndsTheWait) {
  control_.abort(1, "rank 1: something", ExitCode::PeerLost);
  EXPECT_EQ(cause(10, DeviceLook{}), "rank 1: something");
}

TEST_F(DeviceWaiting, ALostLauncherEndsTheWait) {
  EXPECT_EQ(cause(10, DeviceLook{}, [] { return std::string("the launcher is gone"); }),
            "the launcher is gone");
}

}  // namespace
}  // namespace weft
