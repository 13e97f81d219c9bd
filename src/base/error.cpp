// Turns any exception into one sentence and an exit code.
#include "base/error.h"

#include <new>

namespace weft {

Failure current_failure() {
  try {
    throw;
  } catch (const UserError& error) {
    return {error.code(), error.what()};
  } catch (const DeviceError& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::OutOfMemory, "the machine has no memory left"};
  } catch (const std::exception& error) {
    return {ExitCode::Internal, cat("internal error: ", error.what())};
  }
}

}  // namespace weft
