// Which signals stop a run and which end it; the CLI tests cover the handlers.
#include "base/stop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace weft {
namespace {

void wait_a_moment() {
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
}

TEST(StopRequest, AnInterruptAfterTheFirstEndsAtOnce) {
  for (const int first : {SIGINT, SIGTERM, SIGHUP}) {
    StopRequest request;
    EXPECT_EQ(request.signal(), 0);
    EXPECT_EQ(request.take(first), StopAction::Stop);
    EXPECT_EQ(request.signal(), first);
    wait_a_moment();
    EXPECT_EQ(request.take(SIGINT), StopAction::EndNow);
    EXPECT_EQ(request.signal(), first);
  }
}

TEST(StopRequest, SignalsAtTheSameMomentAreOne) {
  StopRequest request;
  EXPECT_EQ(request.take(SIGINT), StopAction::Stop);
  EXPECT_EQ(request.take(SIGINT), StopAction::None);
}

TEST(StopRequest, ASchedulerMayRepeatItself) {
  StopRequest request;
  EXPECT_EQ(request.take(SIGTERM), StopAction::Stop);
  wait_a_moment();
  EXPECT_EQ(request.take(SIGTERM), StopAction::None);
  EXPECT_EQ(request.take(SIGHUP), StopAction::None);
}

TEST(StopRequest, CodesAndNames) {
  EXPECT_EQ(static_cast<int>(stop_code(SIGINT)), 130);
  EXPECT_EQ(static_cast<int>(stop_code(SIGTERM)), 75);
  EXPECT_EQ(static_cast<int>(stop_code(SIGHUP)), 75);
  EXPECT_EQ(signal_name(SIGHUP), "SIGHUP");
}

}  // namespace
}  // namespace weft
