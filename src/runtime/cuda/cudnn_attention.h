// Causal attention by cuDNN's graph interface: one fused kernel forward, one backward, over q, k
// and v where they lie in the packed tensor. The backward keeps ds in scratch memory instead of
// adding up dq with atomics, so that its bits are the same on every run; it works on a part of the
// heads at a time to keep that memory small.
#pragma once

#include <map>
#include <memory>

#include "plan/kernel.h"
#include "runtime/cuda/cudnn_graph.h"

namespace weft::cuda {

// What a plan is made for.
struct AttentionKey {
  bool backward = false;
  DType dtype = DType::BF16;
  int64_t batch = 0;  // samples and key-value heads of one run
  int64_t kv_heads = 0;
  int64_t group = 0;  // query heads of a key-value head
  int64_t length = 0;
  int64_t head_dim = 0;
  int64_t heads = 0;  // of the whole call: they set the strides
  int64_t width = 0;  // of a row of qkv

  auto operator<=>(const AttentionKey&) const = default;  // NOLINT(modernize-use-nullptr): not one
};

class AttentionPlans {
 public:
  explicit AttentionPlans(cudaStream_t stream) : cudnn_(stream) {}

  // Queue attention and attention_grad of the launch.
  void run(const Launch& launch);
  void run_grad(const Launch& launch);

 private:
  struct AttentionPlan;
  // The plan of the key, made within so much workspace when it is first asked for.
  const AttentionPlan& plan(const AttentionKey& key, int64_t workspace_bytes);

  Cudnn cudnn_;
  std::map<AttentionKey, std::shared_ptr<AttentionPlan>> plans_;
};

}  // namespace weft::cuda
