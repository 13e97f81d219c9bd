// The exact text and exit code of a user error.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace weft {

// The message of the UserError that `action` throws; "" if it throws none.
template <class Action>
std::string user_error_of(Action action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// Runs `action` and expects a UserError with this code and exactly this message.
template <class Action>
void expect_user_error(ExitCode code, const std::string& message, Action action) {
  try {
    action();
    ADD_FAILURE() << "no error, expected: " << message;
  } catch (const UserError& error) {
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.code(), code);
  }
}

}  // namespace weft
