// The three kinds of failure and the checks that raise them. A UserError is something the user can
// fix and shows only its message. An InternalError is our bug and shows where it happened. A
// DeviceError is a failure of the machine or of a peer. Messages read "where: found, expected; what
// to do", lower case, no period.
#pragma once

#include <stdexcept>
#include <string>

#include "base/text.h"

namespace weft {

// Process exit codes, so that schedulers and tests can tell failures apart.
enum class ExitCode : int {
  Done = 0,
  CheckFailed = 1,   // a verification ran and found a difference beyond its tolerance
  Config = 64,       // bad config or command line
  InputFile = 65,    // bad input file: unreadable, malformed, too short, out of range
  Internal = 70,     // our bug
  OutOfMemory = 71,  // the machine cannot provide the memory or the files that the plan needs
  CannotWrite = 73,  // output could not be written
  Integrity = 74,    // a checkpoint is damaged
  Preempted = 75,    // ended early by SIGTERM or SIGHUP
  PeerLost = 76,     // another rank died or failed
  NonFinite = 78,    // loss or gradient stayed non-finite
  Hang = 79,         // a rank stopped responding while others waited for it
  CrashLoop = 80,    // ranks died again and again without progress

  Interrupted = 130,  // ended early by SIGINT; the number that shells use
};

// The user can fix this: only the message is shown.
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// A bug in Weft: the message includes file and line.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// The machine, the driver or a peer failed.
class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& message, ExitCode code = ExitCode::Internal)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// What a command prints for an exception, and the exit code it ends with.
struct Failure {
  ExitCode code;
  std::string message;
};

// The failure of the exception being handled; the message of one of our bugs starts with "internal
// error: ".
Failure current_failure();

// Throws UserError(Config) unless the condition holds. Message parts are evaluated on failure only.
#define USER_CHECK(condition, ...)                                                 \
  do {                                                                             \
    if (!(condition)) {                                                            \
      throw ::weft::UserError(::weft::ExitCode::Config, ::weft::cat(__VA_ARGS__)); \
    }                                                                              \
  } while (false)

// Throws UserError(InputFile) unless the condition holds.
#define INPUT_CHECK(condition, ...)                                                   \
  do {                                                                                \
    if (!(condition)) {                                                               \
      throw ::weft::UserError(::weft::ExitCode::InputFile, ::weft::cat(__VA_ARGS__)); \
    }                                                                                 \
  } while (false)

// Throws InternalError with file and line unless the condition holds; stays on in release builds.
#define CHECK(condition, ...)                                                                    \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      throw ::weft::InternalError(::weft::cat(__FILE_NAME__, ":", __LINE__,                      \
                                              ": check failed: " #condition ": ", __VA_ARGS__)); \
    }                                                                                            \
  } while (false)

}  // namespace weft
