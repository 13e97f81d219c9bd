// The CUDA kernels by name: host functions that queue one op on the stream of the launch. They
// allocate nothing; scratch memory comes from the plan.
#pragma once

#include <span>

#include "plan/kernel.h"

namespace weft::cuda {

// Longest head the attention and rope kernels hold in one block.
inline constexpr int kMaxHeadDim = 256;

// The table of the CUDA backend: one plain kernel per op, the fallback of every faster one.
std::span<const Kernel> kernels();

// add, cast, gelu, gelu_grad, dropout, fused.
void launch_elementwise(const Launch& launch);

void launch_matmul(const Launch& launch);
void launch_sum_rows(const Launch& launch);
void launch_layer_norm(const Launch& launch);
void launch_layer_norm_grad(const Launch& launch);
void launch_rms_norm(const Launch& launch);
void launch_rms_norm_grad(const Launch& launch);
void launch_swiglu(const Launch& launch);
void launch_swiglu_grad(const Launch& launch);
void launch_rope(const Launch& launch);
void launch_attention(const Launch& launch);
void launch_attention_grad(const Launch& launch);
void launch_embedding(const Launch& launch);
void launch_embedding_grad(const Launch& launch);
void launch_add_positions(const Launch& launch);
void launch_add_positions_grad(const Launch& launch);
void launch_cross_entropy(const Launch& launch);
void launch_cross_entropy_grad(const Launch& launch);
void launch_accumulate(const Launch& launch);
void launch_square_sum(const Launch& launch);
void launch_norm(const Launch& launch);
void launch_clip(const Launch& launch);
void launch_update_scale(const Launch& launch);
void launch_adamw(const Launch& launch);

// Scratch memory in bytes of the kernels that need some.
int64_t adamw_workspace(const Call& call);
int64_t attention_grad_workspace(const Call& call);
int64_t cross_entropy_workspace(const Call& call);

}  // namespace weft::cuda
