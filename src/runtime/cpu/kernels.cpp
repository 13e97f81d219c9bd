#include "runtime/cpu/kernels.h"

#include <vector>

namespace weft {

std::span<const Kernel> cpu_kernels() {
  static const std::vector<Kernel> all = [] {
    std::vector<Kernel> rows;
    for (const auto family :
         {cpu_elementwise_kernels(), cpu_matmul_kernels(), cpu_norm_kernels(),
          cpu_qk_norm_kernels(), cpu_latent_qkv_kernels(), cpu_attention_kernels(),
          cpu_attention_grad_kernels(), cpu_swiglu_kernels(), cpu_position_kernels(),
          cpu_embedding_kernels(), cpu_loss_kernels(), cpu_optimizer_kernels(), cpu_slice_kernels(),
          cpu_fused_kernels(), cpu_router_kernels(), cpu_expert_kernels(),
          cpu_grouped_matmul_kernels()}) {
      rows.insert(rows.end(), family.begin(), family.end());
    }
    return rows;
  }();
  return all;
}

}  // namespace weft
