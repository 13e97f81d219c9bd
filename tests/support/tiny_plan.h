// A training step small enough to read, a kernel table that takes every op, and plans built from
// them.
#pragma once

#include <string>
#include <vector>

#include "graph/text.h"
#include "plan/lower.h"

namespace weft {

inline constexpr std::string_view kTinyStep = R"(graph tiny {
  %x = input "x" : f32[4,8]
  %micro = input "micro" : i32[]
  %lr = input "lr" : f32[]
  %w = param "w" : f32[8,8]
  %acc = state "grad.w" : f32[8,8]
  %m = state "m.w" : f32[8,8]
  %v = state "v.w" : f32[8,8]
  %count = state "adam.count" : i32[]
  %h = matmul(%x, %w) : f32[4,8]  # layers.0 fwd
  %g = gelu(%h) : f32[4,8]  # layers.0 fwd
  %y = add(%g, %x) : f32[4,8]  # layers.0 fwd
  %squares = square_sum(%y) : i64[12]  # loss fwd
  %loss = norm(%squares) : f32[]  # loss fwd
  %dh = gelu_grad(%y, %h) : f32[4,8]  # layers.0 bwd
  %dw = matmul(%x, %dh; ta=true) : f32[8,8]  # layers.0 bwd
  %sum = accumulate(%acc, %dw, %micro) : f32[8,8]  # layers.0 bwd
  %square_sum = square_sum(%sum) : i64[12]  # opt
  %norm = norm(%square_sum) : f32[]  # opt
  %c, %count2 = clip(%norm, %count; max_norm=1) : f32[], i32[]  # opt
  %w2, %m2, %v2 = adamw(%w, %sum, %m, %v, %lr, %c, %count2) : f32[8,8], f32[8,8], f32[8,8]  # opt
  return loss=%loss, grad_norm=%norm
}
)";

inline constexpr std::string_view kTinyEval = R"(graph tiny {
  %x = input "x" : f32[4,8]
  %w = param "w" : f32[8,8]
  %h = matmul(%x, %w) : f32[4,8]  # layers.0 fwd
  %g = gelu(%h) : f32[4,8]  # layers.0 fwd
  %y = add(%g, %x) : f32[4,8]  # layers.0 fwd
  %squares = square_sum(%y) : i64[12]  # loss fwd
  %loss = norm(%squares) : f32[]  # loss fwd
  return loss=%loss
}
)";

// One kernel per op, "plain", that does nothing; matmul needs 1000 bytes of workspace.
inline std::vector<Kernel> plain_kernels() {
  std::vector<Kernel> kernels;
  for (const OpDef* op : all_ops()) {
    Kernel kernel;
    kernel.op = op->name();
    kernel.name = "plain";
    kernel.launch = [](const Launch&) {};
    if (kernel.op == "matmul") kernel.workspace = [](const Call&) { return int64_t{1000}; };
    kernels.push_back(kernel);
  }
  return kernels;
}

inline DeviceSpec tiny_device() {
  DeviceSpec device;
  device.name = "tiny";
  device.matmul_flops_f32 = 1e9;
  device.matmul_flops_bf16 = 1e9;
  device.memory_bandwidth = 1e9;
  device.launch_latency = 1e-6;
  return device;
}

// Lowers the programs for the backend "test".
inline Plan lower_with(const std::vector<ProgramSource>& sources,
                       const std::vector<Kernel>& kernels) {
  const DeviceSpec device = tiny_device();
  return lower(sources, {.backend = "test", .kernels = kernels, .device = device});
}

// All three programs.
inline Plan tiny_plan() {
  const Graph step = parse_graph(kTinyStep);
  const Graph eval = parse_graph(kTinyEval);
  return lower_with(
      {{ProgramKind::Micro, &step}, {ProgramKind::Last, &step}, {ProgramKind::Eval, &eval}},
      plain_kernels());
}

}  // namespace weft
