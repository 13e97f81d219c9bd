// The host functions behind the kernel table: each queues one op on the stream of the launch. They
// allocate nothing; scratch memory comes from the plan. Builds without CUDA define none of them.
#pragma once

#include "plan/kernel.h"

namespace weft::cuda {

void launch_add(const Launch& launch);
void launch_vector_add(const Launch& launch);
void launch_cast(const Launch& launch);
void launch_vector_cast(const Launch& launch);
void launch_gelu(const Launch& launch);
void launch_vector_gelu(const Launch& launch);
void launch_gelu_grad(const Launch& launch);
void launch_vector_gelu_grad(const Launch& launch);
void launch_dropout(const Launch& launch);
void launch_vector_dropout(const Launch& launch);
void launch_shard_rng(const Launch& launch);
void launch_split_time(const Launch& launch);
void launch_concat_time(const Launch& launch);
void launch_qk_norm(const Launch& launch);
void launch_qk_norm_grad(const Launch& launch);
void launch_repeat_kv(const Launch& launch);
void launch_repeat_kv_grad(const Launch& launch);
void launch_split_columns(const Launch& launch);
void launch_concat_columns(const Launch& launch);
void launch_take_shard(const Launch& launch);
void launch_to_partial(const Launch& launch);
void launch_matmul(const Launch& launch);
void launch_cublaslt_matmul(const Launch& launch);
void launch_sum_rows(const Launch& launch);
void launch_tiled_sum_rows(const Launch& launch);
void launch_layer_norm(const Launch& launch);
void launch_layer_norm_grad(const Launch& launch);
void launch_rms_norm(const Launch& launch);
void launch_rms_norm_grad(const Launch& launch);
void launch_row_norm(const Launch& launch);
void launch_row_layer_norm_grad(const Launch& launch);
void launch_row_layer_norm_grad_sums(const Launch& launch);
void launch_row_rms_norm_grad(const Launch& launch);
void launch_cublaslt_matmul_add(const Launch& launch);
void launch_cublaslt_matmul_accumulate(const Launch& launch);
void launch_swiglu(const Launch& launch);
void launch_swiglu_grad(const Launch& launch);
void launch_vector_swiglu(const Launch& launch);
void launch_vector_swiglu_grad(const Launch& launch);
void launch_router(const Launch& launch);
void launch_router_grad(const Launch& launch);
void launch_route(const Launch& launch);
void launch_expert_counts(const Launch& launch);
void launch_lost_rows(const Launch& launch);
void launch_guard_norm(const Launch& launch);
void launch_balance_router(const Launch& launch);
void launch_vector_dispatch(const Launch& launch);
void launch_dispatch(const Launch& launch);
void launch_vector_combine(const Launch& launch);
void launch_combine(const Launch& launch);
void launch_dispatch_weights(const Launch& launch);
void launch_combine_weights(const Launch& launch);
void launch_vector_scale_rows(const Launch& launch);
void launch_scale_rows(const Launch& launch);
void launch_vector_scale_rows_grad(const Launch& launch);
void launch_scale_rows_grad(const Launch& launch);
void launch_vector_weighted_swiglu(const Launch& launch);
void launch_weighted_swiglu(const Launch& launch);
void launch_vector_weighted_swiglu_grad(const Launch& launch);
void launch_weighted_swiglu_grad(const Launch& launch);
void launch_tensor_grouped_matmul(const Launch& launch);
void launch_grouped_matmul(const Launch& launch);
void launch_tensor_grouped_matmul_grad_w(const Launch& launch);
void launch_grouped_matmul_grad_w(const Launch& launch);
void launch_rope(const Launch& launch);
void launch_table_rope(const Launch& launch);
void launch_scale_queries(const Launch& launch);
void launch_latent_qkv(const Launch& launch);
void launch_latent_qkv_grad(const Launch& launch);
void launch_attention(const Launch& launch);
void launch_attention_grad(const Launch& launch);
void launch_document_attention(const Launch& launch);
void launch_document_attention_grad(const Launch& launch);
void launch_context_attention(const Launch& launch);
void launch_context_attention_more(const Launch& launch);
void launch_context_attention_grad(const Launch& launch);
void launch_tiled_attention(const Launch& launch);
void launch_tiled_attention_grad(const Launch& launch);
void launch_tiled_document_attention(const Launch& launch);
void launch_tiled_document_attention_grad(const Launch& launch);
void launch_hopper_attention_grad(const Launch& launch);
void launch_cudnn_attention(const Launch& launch);
void launch_cudnn_attention_grad(const Launch& launch);
void launch_embedding(const Launch& launch);
void launch_embedding_grad(const Launch& launch);
void launch_vector_embedding(const Launch& launch);
void launch_ordered_embedding_grad(const Launch& launch);
void launch_ordered_embedding_grad_add(const Launch& launch);
void launch_add_bias(const Launch& launch);
void launch_add_positions(const Launch& launch);
void launch_add_positions_grad(const Launch& launch);
void launch_vector_add_positions(const Launch& launch);
void launch_vector_add_positions_grad(const Launch& launch);
void launch_cross_entropy_grad(const Launch& launch);
void launch_online_cross_entropy(const Launch& launch);
void launch_vector_cross_entropy_grad(const Launch& launch);
void launch_online_cross_entropy_stats(const Launch& launch);
void launch_cross_entropy_combine(const Launch& launch);
// Zeroes an accumulator in micro-batch 0.
void launch_clear_at_start(const Tensor& acc, const Tensor& micro, const Launch& launch);
void launch_accumulate(const Launch& launch);
void launch_vector_accumulate(const Launch& launch);
void launch_square_sum(const Launch& launch);
void launch_norm(const Launch& launch);
void launch_clip(const Launch& launch);
void launch_update_scale(const Launch& launch);
void launch_adamw(const Launch& launch);
void launch_vector_adamw(const Launch& launch);

}  // namespace weft::cuda
