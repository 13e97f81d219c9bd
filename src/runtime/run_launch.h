// How a stream runs a launch: errors say which step they come from, even on a thread that runs it
// later, and the other ranks see what this one does.
#pragma once

#include <exception>
#include <string_view>

#include "base/error.h"
#include "plan/kernel.h"
#include "runtime/comm/communicator.h"

namespace weft {

// Runs the action and prefixes "where: " to the message of any error, keeping its type.
template <class Action>
void with_place(std::string_view where, Action action) {
  try {
    action();
  } catch (const UserError& error) {
    throw UserError(error.code(), cat(where, ": ", error.what()));
  } catch (const DeviceError& error) {
    throw DeviceError(cat(where, ": ", error.what()), error.code());
  } catch (const std::exception& error) {
    throw InternalError(cat(where, ": ", error.what()));
  }
}

inline void run_launch(const Kernel& kernel, const Launch& launch) {
  const bool is_step = launch.comm != nullptr && !launch.where.empty();  // of a plan
  if (!is_step) return kernel.launch(launch);
  launch.comm->report_progress(launch.channel, launch.where);
  try {
    with_place(launch.where, [&] { kernel.launch(launch); });
  } catch (const std::exception& error) {
    // The other streams and ranks would wait for a collective that never runs.
    launch.comm->abort(error.what());
    throw;
  }
  launch.comm->report_progress(launch.channel, "");
}

}  // namespace weft
