// Causal attention through cuDNN's graph API: one fused kernel forward, one backward, on q, k and v
// as they lie in the packed tensor. The backward keeps ds in scratch memory instead of accumulating
// dq with atomics, so its bits are the same on every run. It processes a part of the heads at a
// time to keep that memory small.
#pragma once

#include <map>
#include <memory>

#include "plan/kernel.h"
#include "runtime/cuda/attention/cudnn_graph.h"

namespace weft::cuda {

// The parameters that determine a plan.
struct AttentionKey {
  bool backward = false;
  DType dtype = DType::BF16;
  int64_t batch = 0;  // samples and key-value heads of one run
  int64_t kv_heads = 0;
  int64_t group = 0;  // query heads per key-value head
  int64_t length = 0;
  int64_t head_dim = 0;
  int64_t heads = 0;  // of the full call: they set the strides
  int64_t width = 0;  // of a row of qkv

  auto operator<=>(const AttentionKey&) const = default;  // NOLINT(modernize-use-nullptr): not one
};

class AttentionPlans {
 public:
  explicit AttentionPlans(cudaStream_t stream) : cudnn_(stream) {}

  // Queue the launch's attention and attention_grad.
  void run(const Launch& launch);
  void run_grad(const Launch& launch);

 private:
  struct AttentionPlan;
  // The plan for the key, built on first use within this much workspace.
  const AttentionPlan& plan(const AttentionKey& key, int64_t workspace_bytes);

  Cudnn cudnn_;
  std::map<AttentionKey, std::shared_ptr<AttentionPlan>> plans_;
};

}  // namespace weft::cuda
