// Times single kernels on their device, launched as a plan launches them: a batch of launches on
// one stream, so that launch overhead on the host hides behind the kernels as it does in a step.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/device.h"

namespace weft {

// Seconds per action, measured in batches: the best of several batches after `settling` seconds of
// warm-up; `queue` adds the action to the stream. The minimum is used because other load only makes
// a batch longer.
double best_seconds(Stream& stream, const std::function<void()>& queue, double settling = 0);

class KernelTimer {
 public:
  // `kernels` and `device` outlive the timer.
  KernelTimer(std::span<const Kernel> kernels, std::string_view backend, Device& device);

  // Seconds of one launch of the kernel that a plan would choose, on generated operands. Throws
  // UserError when there is none.
  double seconds(const Call& call);

  // The device's fastest algorithm for that launch; nullopt where there is no choice.
  std::optional<TunedCall> tune(const Call& call);

 private:
  // Calls action(kernel, launch) with generated operands.
  void with_launch(const Call& call,
                   const std::function<void(const Kernel&, const Launch&)>& action);

  std::span<const Kernel> kernels_;
  std::string backend_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace weft
