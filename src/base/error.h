// The three kinds of failure and the checks that raise them. A UserError is something the user can
// mend and shows its message alone; an InternalError is our bug and shows where; a DeviceError is
// the machine or a peer. Messages read "where: found, expected; what to do", lower case, no period.
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
  OutOfMemory = 71,  // the machine cannot give the memory or the files that the plan needs
  CannotWrite = 73,  // output could not be written
  Preempted = 75,    // ended early by SIGTERM or SIGHUP
  PeerLost = 76,     // another rank died or failed
  NonFinite = 78,    // loss or gradient stayed non-finite
  Hang = 79,         // a rank fell silent while others waited for it

  Interrupted = 130,  // ended early by SIGINT, numbered as shells do
};

// The user can mend this: the message is all that is shown.
class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// A bug in Weft: shown with its place.
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

// What a command tells of an exception, and the exit code that goes with it.
struct Failure {
  ExitCode code;
  std::string message;
};

// For the exception that is being handled: its message, with "internal error: " before it where it
// is our bug.
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
