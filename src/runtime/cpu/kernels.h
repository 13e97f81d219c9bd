// The kernel table of the host, and the rows that each family of kernels contributes.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft {

// Every kernel of the host device.
std::span<const Kernel> cpu_kernels();

// The rows of one family, in the file of that name.
std::span<const Kernel> cpu_elementwise_kernels();
std::span<const Kernel> cpu_matmul_kernels();
std::span<const Kernel> cpu_norm_kernels();
std::span<const Kernel> cpu_qk_norm_kernels();
std::span<const Kernel> cpu_latent_qkv_kernels();
std::span<const Kernel> cpu_attention_kernels();
std::span<const Kernel> cpu_attention_grad_kernels();
std::span<const Kernel> cpu_swiglu_kernels();
std::span<const Kernel> cpu_position_kernels();
std::span<const Kernel> cpu_embedding_kernels();
std::span<const Kernel> cpu_loss_kernels();
std::span<const Kernel> cpu_optimizer_kernels();
std::span<const Kernel> cpu_slice_kernels();
std::span<const Kernel> cpu_fused_kernels();
std::span<const Kernel> cpu_router_kernels();
std::span<const Kernel> cpu_expert_kernels();
std::span<const Kernel> cpu_grouped_matmul_kernels();

}  // namespace weft
