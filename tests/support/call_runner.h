// Runs one call on a device from host tensors to host tensors, the way a plan would: operands are
// copied in, results share the memory of the operands they overwrite, everything is copied out.
// Results and workspace are filled with NaN bytes first, and every buffer is followed by a guard.
#pragma once

#include <span>
#include <vector>

#include "runtime/device.h"

namespace weft {

// A tensor in host memory.
struct HostTensor {
  TensorType type;
  std::vector<char> bytes;

  HostTensor() = default;
  // Filled with bytes that are NaN in every floating dtype and -1 in i32.
  explicit HostTensor(TensorType tensor_type)
      : type(std::move(tensor_type)), bytes(static_cast<size_t>(type.bytes()), '\xff') {}
  // Elements rounded to the type.
  HostTensor(TensorType tensor_type, const std::vector<double>& values);

  // All elements, integers included.
  std::vector<double> values() const;
  double value(size_t i) const { return values().at(i); }
};

// Runs `kernel` and returns the results; throws InternalError when it writes to an operand that it
// does not overwrite, or past the end of a buffer.
std::vector<HostTensor> run_kernel(const Kernel& kernel, Device& device, const Call& call,
                                   const std::vector<HostTensor>& operands);

// The same with the table's preferred row.
std::vector<HostTensor> run_call(std::span<const Kernel> kernels, Device& device, const Call& call,
                                 const std::vector<HostTensor>& operands);

}  // namespace weft
