// Times single kernels on their device, launched as a plan launches them: a row of launches on one
// stream, so that what a launch costs the host hides behind the kernels as it does in a step.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/device.h"

namespace weft {

// Seconds of one action in rows of them, the best of several rows after `settling` seconds of them;
// `queue` adds the action to the stream. Others on the machine only ever make a row longer.
double best_seconds(Stream& stream, const std::function<void()>& queue, double settling = 0);

class KernelTimer {
 public:
  // `kernels` and `device` outlive the timer.
  KernelTimer(std::span<const Kernel> kernels, std::string_view backend, Device& device);

  // Seconds of one launch of the kernel that a plan would choose, on operands made up for it.
  // Throws UserError when there is none.
  double seconds(const Call& call);

  // What the device finds best for that launch; nullopt where it has no choice.
  std::optional<TunedCall> tune(const Call& call);

 private:
  // Calls action(kernel, launch) with operands made up for the call.
  void with_launch(const Call& call,
                   const std::function<void(const Kernel&, const Launch&)>& action);

  std::span<const Kernel> kernels_;
  std::string backend_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace weft
