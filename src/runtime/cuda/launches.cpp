// Maps each row of the table to the function that launches it.
#include "runtime/cuda/launches.h"

#include "base/error.h"
#include "plan/part_kernels.h"
#include "runtime/cuda/kernels.h"

namespace weft::cuda {

namespace {

struct NamedLaunch {
  std::string_view kernel;
  void (*launch)(const Launch&) = nullptr;
};

constexpr NamedLaunch kLaunches[] = {
    {"vector_add", launch_vector_elementwise},
    {"plain_add", launch_elementwise},
    {"vector_add_in_place", launch_vector_elementwise},
    {"plain_add_in_place", launch_elementwise},
    {"plain_split_time", launch_split_time},
    {"plain_concat_time", launch_concat_time},
    {"vector_cast", launch_vector_elementwise},
    {"plain_cast", launch_elementwise},
    {"vector_gelu", launch_vector_elementwise},
    {"plain_gelu", launch_elementwise},
    {"vector_gelu_grad", launch_vector_elementwise},
    {"plain_gelu_grad", launch_elementwise},
    {"vector_dropout", launch_vector_dropout},
    {"plain_dropout", launch_elementwise},
    {"dropout_add", launch_dropout_add},
    {"vector_fused", launch_vector_elementwise},
    {"plain_fused", launch_elementwise},
    {"cublaslt_matmul", launch_cublaslt_matmul},
    {"plain_matmul", launch_matmul},
    {"tiled_sum_rows", launch_tiled_sum_rows},
    {"plain_sum_rows", launch_sum_rows},
    {"row_layer_norm", launch_row_norm},
    {"plain_layer_norm", launch_layer_norm},
    {"row_layer_norm_grad", launch_row_layer_norm_grad},
    {"plain_layer_norm_grad", launch_layer_norm_grad},
    {"row_rms_norm", launch_row_norm},
    {"plain_rms_norm", launch_rms_norm},
    {"row_rms_norm_grad", launch_row_rms_norm_grad},
    {"plain_rms_norm_grad", launch_rms_norm_grad},
    {"vector_swiglu", launch_vector_swiglu},
    {"plain_swiglu", launch_swiglu},
    {"vector_swiglu_grad", launch_vector_swiglu_grad},
    {"plain_swiglu_grad", launch_swiglu_grad},
    {"table_rope", launch_table_rope},
    {"plain_rope", launch_rope},
    {"cudnn_attention", launch_cudnn_attention},
    {"tiled_attention", launch_tiled_attention},
    {"plain_attention", launch_attention},
    {"hopper_attention_grad", launch_hopper_attention_grad},
    {"cudnn_attention_grad", launch_cudnn_attention_grad},
    {"tiled_attention_grad", launch_tiled_attention_grad},
    {"plain_attention_grad", launch_attention_grad},
    {"tiled_document_attention", launch_tiled_document_attention},
    {"plain_document_attention", launch_document_attention},
    {"tiled_document_attention_grad", launch_tiled_document_attention_grad},
    {"plain_document_attention_grad", launch_document_attention_grad},
    {"vector_embedding", launch_vector_embedding},
    {"plain_embedding", launch_embedding},
    {"ordered_embedding_grad", launch_ordered_embedding_grad},
    {"plain_embedding_grad", launch_embedding_grad},
    {"vector_add_positions", launch_vector_add_positions},
    {"plain_add_positions", launch_add_positions},
    {"vector_add_positions_grad", launch_vector_add_positions_grad},
    {"plain_add_positions_grad", launch_add_positions_grad},
    {"cluster_cross_entropy", launch_cluster_cross_entropy},
    {"online_cross_entropy", launch_online_cross_entropy},
    {"plain_cross_entropy", launch_cross_entropy},
    {"vector_cross_entropy_grad", launch_vector_cross_entropy_grad},
    {"plain_cross_entropy_grad", launch_cross_entropy_grad},
    {"cluster_cross_entropy_both", launch_cluster_cross_entropy_both},
    {"online_cross_entropy_both", launch_online_cross_entropy_both},
    {"plain_cross_entropy_both", launch_cross_entropy_both},
    {"vector_gelu_grad_sum", launch_vector_gelu_grad_sum},
    {"plain_gelu_grad_sum", launch_fused_parts},
    {"cublaslt_matmul_add", launch_cublaslt_matmul_add},
    {"plain_matmul_add", launch_fused_parts},
    {"cublaslt_matmul_accumulate", launch_cublaslt_matmul_accumulate},
    {"plain_matmul_accumulate", launch_fused_parts},
    {"ordered_embedding_grad_add", launch_ordered_embedding_grad_add},
    {"plain_embedding_grad_add", launch_fused_parts},
    {"row_add_layer_norm", launch_row_add_norm},
    {"plain_add_layer_norm", launch_fused_parts},
    {"row_add_rms_norm", launch_row_add_norm},
    {"plain_add_rms_norm", launch_fused_parts},
    {"row_layer_norm_grad_sums", launch_row_layer_norm_grad_sums},
    {"plain_layer_norm_grad_sums", launch_fused_parts},
    {"row_rms_norm_grad_add", launch_row_rms_norm_grad},
    {"plain_rms_norm_grad_add", launch_fused_parts},
    {"vector_accumulate", launch_vector_accumulate},
    {"plain_accumulate", launch_accumulate},
    {"exact_square_sum", launch_square_sum},
    {"plain_norm", launch_norm},
    {"plain_clip", launch_clip},
    {"plain_update_scale", launch_update_scale},
    {"vector_adamw", launch_vector_adamw},
    {"plain_adamw", launch_adamw},
    {"vector_adamw_cast", launch_vector_adamw},
    {"plain_adamw_cast", launch_adamw},
};

}  // namespace

void launch_fused_parts(const Launch& launch) {
  launch_parts(kernels(), launch);
}

void (*find_launch(std::string_view kernel))(const Launch&) {
  for (const NamedLaunch& row : kLaunches) {
    if (row.kernel == kernel) return row.launch;
  }
  CHECK(false, "no launch function of ", kernel);
}

}  // namespace weft::cuda
