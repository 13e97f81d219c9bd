// Measures a device into the spec that plans are made for: the rates of its kernels at the sizes of
// training. It measures exactly what a step runs, so nothing here depends on the backend.
#pragma once

#include <vector>

#include "config/device_spec.h"
#include "runtime/device.h"

namespace weft {

// Rates, memory and the fraction that each op's kernels reach; the rest is copied from `known`.
DeviceSpec calibrate(const Backend& backend, Device& device, DeviceSpec known);

// A collective: its bytes and the seconds it took.
struct Timed {
  double bytes = 0;
  double seconds = 0;
};

// Seconds = latency + bytes / bandwidth, fitted for the least relative error; the latency is not
// negative.
struct LatencyBandwidth {
  double latency = 0;
  double bandwidth = 0;
};
LatencyBandwidth fit_link(const std::vector<Timed>& measured);

}  // namespace weft
