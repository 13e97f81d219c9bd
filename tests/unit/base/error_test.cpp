// The message and exit code of each kind of failure.
#include "base/error.h"

#include <gtest/gtest.h>

#include <new>

namespace weft {
namespace {

template <class Action>
Failure failure_of(const Action& action) {
  try {
    action();
  } catch (...) {
    return current_failure();
  }
  return {ExitCode::Done, "no failure"};
}

void expect_failure(const Failure& failure, ExitCode code, const std::string& message) {
  EXPECT_EQ(failure.code, code);
  EXPECT_EQ(failure.message, message);
}

TEST(Error, WhatAUserOrAMachineDidIsToldAsItIs) {
  expect_failure(failure_of([] { USER_CHECK(false, "a: ", 1); }), ExitCode::Config, "a: 1");
  expect_failure(failure_of([] { INPUT_CHECK(false, "b"); }), ExitCode::InputFile, "b");
  expect_failure(failure_of([] { throw DeviceError("c", ExitCode::Hang); }), ExitCode::Hang, "c");
  expect_failure(failure_of([] { throw std::bad_alloc(); }), ExitCode::OutOfMemory,
                 "the machine has no memory left");
}

TEST(Error, OurBugsSayThatTheyAre) {
  expect_failure(failure_of([] { throw InternalError("no kernel"); }), ExitCode::Internal,
                 "internal error: no kernel");
  expect_failure(failure_of([] { throw std::out_of_range("vector::at"); }), ExitCode::Internal,
                 "internal error: vector::at");
  const int line = __LINE__ + 1;
  expect_failure(failure_of([] { CHECK(1 > 2, "x is ", 3); }), ExitCode::Internal,
                 cat("internal error: error_test.cpp:", line, ": check failed: 1 > 2: x is 3"));
}

}  // namespace
}  // namespace weft
