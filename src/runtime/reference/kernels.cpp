// The reference table.
#include "runtime/reference/kernels.h"

#include "plan/part_kernels.h"
#include "runtime/reference/launches.h"

namespace weft {
namespace {

Decision any_call(const Call&) {
  return Decision::yes();
}

constexpr Kernel row(std::string_view op, std::string_view name, void (*launch)(const Launch&)) {
  return {op, name, any_call, nullptr, launch};
}

// Fused ops run as their parts, in sequence.
int64_t parts_workspace(const Call& call) {
  return parts_workspace(reference_kernels(), call);
}
void launch_fused_parts(const Launch& launch) {
  launch_parts(reference_kernels(), launch);
}
constexpr Kernel fused(std::string_view op) {
  return {op, "reference_parts", any_call, parts_workspace, launch_fused_parts};
}

constexpr Kernel kKernels[] = {
    row("add", "reference_add", reference::add),
    row("cast", "reference_cast", reference::cast),
    row("gelu", "reference_gelu", reference::gelu),
    row("gelu_grad", "reference_gelu_grad", reference::gelu_grad),
    row("dropout", "reference_dropout", reference::dropout),
    row("shard_rng", "reference_shard_rng", reference::shard_rng),
    row("matmul", "reference_matmul", reference::matmul),
    row("sum_rows", "reference_sum_rows", reference::sum_rows),
    row("layer_norm", "reference_layer_norm", reference::layer_norm),
    row("layer_norm_grad", "reference_layer_norm_grad", reference::layer_norm_grad),
    row("rms_norm", "reference_rms_norm", reference::rms_norm),
    row("rms_norm_grad", "reference_rms_norm_grad", reference::rms_norm_grad),
    row("swiglu", "reference_swiglu", reference::swiglu),
    row("swiglu_grad", "reference_swiglu_grad", reference::swiglu_grad),
    row("rope", "reference_rope", reference::rope),
    row("scale_queries", "reference_scale_queries", reference::scale_queries),
    row("attention", "reference_attention", reference::attention),
    row("attention_grad", "reference_attention_grad", reference::attention_grad),
    row("document_attention", "reference_document_attention", reference::document_attention),
    row("document_attention_grad", "reference_document_attention_grad",
        reference::document_attention_grad),
    row("context_attention", "reference_context_attention", reference::context_attention),
    row("context_attention_more", "reference_context_attention_more",
        reference::context_attention_more),
    row("context_attention_grad", "reference_context_attention_grad",
        reference::context_attention_grad),
    row("qk_norm", "reference_qk_norm", reference::qk_norm),
    row("qk_norm_grad", "reference_qk_norm_grad", reference::qk_norm_grad),
    row("qk_unit_norm", "reference_qk_unit_norm", reference::qk_norm),
    row("qk_unit_norm_grad", "reference_qk_unit_norm_grad", reference::qk_norm_grad),
    row("latent_qkv", "reference_latent_qkv", reference::latent_qkv),
    row("latent_qkv_grad", "reference_latent_qkv_grad", reference::latent_qkv_grad),
    row("repeat_kv", "reference_repeat_kv", reference::repeat_kv),
    row("repeat_kv_grad", "reference_repeat_kv_grad", reference::repeat_kv_grad),
    row("split_qkv", "reference_split_qkv", reference::split_columns),
    row("concat_qkv", "reference_concat_qkv", reference::concat_columns),
    row("split_columns", "reference_split_columns", reference::split_columns),
    row("concat_columns", "reference_concat_columns", reference::concat_columns),
    row("router", "reference_router", reference::router),
    row("router_grad", "reference_router_grad", reference::router_grad),
    row("route", "reference_route", reference::route),
    row("expert_counts", "reference_expert_counts", reference::expert_counts),
    row("lost_rows", "reference_lost_rows", reference::lost_rows),
    row("guard_norm", "reference_guard_norm", reference::guard_norm),
    row("balance_router", "reference_balance_router", reference::balance_router),
    row("router_loss", "reference_router_loss", reference::router_loss),
    row("router_loss_grad", "reference_router_loss_grad", reference::router_loss_grad),
    row("dispatch", "reference_dispatch", reference::dispatch),
    row("combine", "reference_combine", reference::combine),
    row("dispatch_weights", "reference_dispatch_weights", reference::dispatch_weights),
    row("combine_weights", "reference_combine_weights", reference::combine_weights),
    row("grouped_matmul", "reference_grouped_matmul", reference::grouped_matmul),
    row("grouped_matmul_grad_w", "reference_grouped_matmul_grad_w",
        reference::grouped_matmul_grad_w),
    row("weighted_swiglu", "reference_weighted_swiglu", reference::weighted_swiglu),
    row("weighted_swiglu_grad", "reference_weighted_swiglu_grad", reference::weighted_swiglu_grad),
    row("scale_rows", "reference_scale_rows", reference::scale_rows),
    row("scale_rows_grad", "reference_scale_rows_grad", reference::scale_rows_grad),
    row("embedding", "reference_embedding", reference::embedding),
    row("embedding_grad", "reference_embedding_grad", reference::embedding_grad),
    row("add_bias", "reference_add_bias", reference::add_bias),
    row("add_positions", "reference_add_positions", reference::add_positions),
    row("add_positions_grad", "reference_add_positions_grad", reference::add_positions_grad),
    row("cross_entropy", "reference_cross_entropy", reference::cross_entropy),
    row("cross_entropy_grad", "reference_cross_entropy_grad", reference::cross_entropy_grad),
    row("cross_entropy_stats", "reference_cross_entropy_stats", reference::cross_entropy_stats),
    row("cross_entropy_combine", "reference_cross_entropy_combine",
        reference::cross_entropy_combine),
    row("split_time", "reference_split_time", reference::split_time),
    row("concat_time", "reference_concat_time", reference::concat_time),
    row("take_shard", "reference_take_shard", reference::take_shard),
    row("to_partial", "reference_to_partial", reference::to_partial),
    row("add_in_place", "reference_add_in_place", reference::add),
    fused("matmul_add"),
    fused("matmul_accumulate"),
    fused("embedding_grad_add"),
    fused("layer_norm_grad_sums"),
    row("accumulate", "reference_accumulate", reference::accumulate),
    row("square_sum", "reference_square_sum", reference::square_sum),
    row("norm", "reference_norm", reference::norm),
    row("clip", "reference_clip", reference::clip),
    row("update_scale", "reference_update_scale", reference::update_scale),
    row("adamw", "reference_adamw", reference::adamw),
    row("adamw_cast", "reference_adamw_cast", reference::adamw),
};

}  // namespace

std::span<const Kernel> reference_kernels() {
  return kKernels;
}

}  // namespace weft
