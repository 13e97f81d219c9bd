// Measures a device into the spec that plans are made for: rates of its own kernels at the sizes of
// training. What is measured is what a step runs, so nothing here depends on the backend.
#pragma once

#include <vector>

#include "config/device_spec.h"
#include "runtime/device.h"

namespace weft {

// The rates, the memory and what the kernels of each op reach; the rest is as in `known`.
DeviceSpec calibrate(const Backend& backend, Device& device, DeviceSpec known);

// A collective of so many bytes that took so long.
struct Timed {
  double bytes = 0;
  double seconds = 0;
};

// Seconds = latency + bytes / bandwidth, with the least relative error; the latency is not
// negative.
struct LatencyBandwidth {
  double latency = 0;
  double bandwidth = 0;
};
LatencyBandwidth fit_link(const std::vector<Timed>& measured);

}  // namespace weft
