// Names for generated tests, and the ops, backends and devices they run over.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/call_text.h"
#include "graph/samples.h"
#include "graph/sharding.h"
#include "runtime/device.h"

namespace weft {

// Every op that one rank computes from its shards alone: all except sources, collectives and
// take_shard.
inline std::vector<const OpDef*> computed_ops() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : all_ops()) {
    if (!op->traits.source && !op->traits.places) ops.push_back(op);
  }
  return ops;
}

// Backends whose kernels compute something.
inline std::vector<const Backend*> computing_backends() {
  std::vector<const Backend*> backends;
  for (const Backend& backend : all_backends()) {
    if (backend.name != "null") backends.push_back(&backend);
  }
  return backends;
}

// Those except the reference itself.
inline std::vector<const Backend*> compared_backends() {
  std::vector<const Backend*> backends = computing_backends();
  std::erase_if(backends, [](const Backend* backend) { return backend->name == "reference"; });
  return backends;
}

// The device of a backend, with two threads if it is a host device; shared by all tests. Only a GPU
// may be missing: then the test is skipped with the reason, and must return when it gets nullptr.
inline Device* device_or_skip(const Backend& backend) {
  static std::map<std::string_view, std::unique_ptr<Device>> devices;
  std::unique_ptr<Device>& device = devices[backend.name];
  try {
    if (!device) device = backend.make_device({.threads = 2});
  } catch (const DeviceError& error) {
    if (backend.name != "cuda" || error.code() != ExitCode::Config) throw;
    [&] { GTEST_SKIP() << "no " << backend.name << " device: " << error.what(); }();
  }
  return device.get();
}

// The samples of an op. Samples in bf16 are repeated in f16, and where `out` is the dtype of a
// gradient, each is repeated with bf16.
inline std::vector<Call> samples_under_test(const OpDef& op) {
  std::vector<Call> calls = parse_samples(op);
  for (std::string_view sample : split_top_level(op.samples, '|')) {
    std::string text(sample);
    if (text.find("bf16") == std::string::npos) continue;
    for (size_t at; (at = text.find("bf16")) != std::string::npos;) text.erase(at, 1);
    for (Call& call : parse_samples(op, text)) calls.push_back(std::move(call));
  }
  const auto& attrs = op.parsed().attrs;
  const bool has_out = std::any_of(attrs.begin(), attrs.end(),
                                   [](const AttrSpec& attr) { return attr.name == "out"; });
  for (size_t i = 0, samples = calls.size(); has_out && i < samples; ++i) {
    Call call = calls[i];
    call.attrs.at(op.parsed().attr_index("out")) = std::string("bf16");
    call.results.clear();
    call.results = op.infer(call);
    calls.push_back(std::move(call));
  }
  return calls;
}

// The sharding rule's name for a dim of operand `i`: its letter, or the number of a leading dim.
// Dims of the same name have the same size.
inline std::string dim_name(const Call& call, size_t i, int64_t dim) {
  const ShardingTerm term = sharding_rule(call).operands.at(i);
  const auto rank = static_cast<int64_t>(call.operands[i].shape.size());
  const int64_t leading = rank - static_cast<int64_t>(term.dims.size());
  if (dim < leading) return std::to_string(dim);
  return {term.dims.at(static_cast<size_t>(dim - leading))};
}

inline bool is_small(const Call& call) {
  int64_t elements = 0;
  for (const TensorType& type : call.operands) elements += type.elements();
  return elements <= 20000;
}

// The small samples with rows eight times as long, which vector kernels accept; those that the op
// allows.
inline std::vector<Call> widened_samples(const OpDef& op) {
  std::vector<Call> calls;
  for (const Call& sample : samples_under_test(op)) {
    if (!is_small(sample)) continue;
    std::set<std::string> widened;
    for (size_t i = 0; i < sample.operands.size(); ++i) {
      const TensorType& type = sample.operands[i];
      if (!is_floating(type.dtype) || type.shape.empty()) continue;
      widened.insert(dim_name(sample, i, std::ssize(type.shape) - 1));
    }
    Call call = sample;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      Shape& shape = call.operands[i].shape;
      for (size_t dim = 0; dim < shape.size(); ++dim) {
        if (widened.contains(dim_name(sample, i, static_cast<int64_t>(dim)))) shape[dim] *= 8;
      }
    }
    call.results.clear();
    try {
      call.results = op.infer(call);
    } catch (const UserError&) {
      continue;
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

// "matmul(f32[3,5], f32[7,5]; tb=true)", to say which sample failed.
inline std::string describe(const Call& call) {
  std::vector<std::string> operands;
  for (const TensorType& type : call.operands) operands.push_back(to_string(type));
  return cat(call.op->name(), "(", join(operands, ", "), print_call_attrs(*call.op, call.attrs),
             ")");
}

}  // namespace weft
