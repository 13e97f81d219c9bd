// The CUDA kernels: what launches each one, what it accepts and what it needs. A fast row refuses
// the shapes it does not handle and leaves them to the row below it.
#include "runtime/cuda/kernels.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "plan/attention_heads.h"
#include "plan/part_kernels.h"
#include "runtime/cuda/gemm/gemm_shape.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

constexpr int64_t kFloatBytes = 4;
// Upper bound for the scratch memory of an attention gradient, where it can run in parts.
constexpr int64_t kAttentionPartBytes = int64_t{2} << 30;
// What cuDNN's attention may use in addition to the tensors that are counted individually.
constexpr int64_t kCudnnWorkspace = int64_t{4} << 20;

// Every row reads and writes f32, bf16 and f16, and integers where the op asks for them.
Decision any_call(const Call& call) {
  for (const auto* types : {&call.operands, &call.results}) {
    for (const TensorType& type : *types) {
      if (type.dtype == DType::F64) return Decision::no("f64 is not supported");
    }
  }
  return Decision::yes();
}

// Rows of this length are read eight elements at a time.
Decision vector_rows(const Call& call, int64_t length) {
  if (length % kVector != 0) {
    return Decision::no(cat("rows of ", length, ", not a multiple of ", kVector));
  }
  return any_call(call);
}

Decision vector_results(const Call& call) {
  return vector_rows(call, row_length(call.results.at(0)));
}

template <size_t kOperand>
Decision vector_operand(const Call& call) {
  return vector_rows(call, row_length(call.type(kOperand)));
}

Decision vector_elements(const Call& call) {
  const int64_t elements = call.type(0).elements();
  if (elements % kVector != 0) {
    return Decision::no(cat(elements, " elements, not a multiple of ", kVector));
  }
  return any_call(call);
}

// A vector needs two blocks of four random words, which begin where a sample does.
Decision vector_dropout_fits(const Call& call) {
  const TensorType& x = call.type("x");
  if (call.type("rng").elements() > 6) return Decision::no("dropout on a shard over cp");
  const int64_t per_sample = x.elements() / std::max<int64_t>(1, x.shape.at(0));
  if (per_sample % 4 != 0) {
    return Decision::no(cat("samples of ", per_sample,
                            " elements, which begin within a block of four random words"));
  }
  return vector_elements(call);
}

Decision gemm_fits(const Call& call) {
  const DType in = call.type(0).dtype;
  const DType out = call.results.at(0).dtype;
  if (out != in && out != DType::F32) return Decision::no("the result has another half type");
  if (call.operands.size() > 2 && out != in) return Decision::no("a bias of another type");
  if (call.type(0).elements() == 0 || call.type(1).elements() == 0) return Decision::no("is empty");
  return any_call(call);
}

// A matmul added to f32: operand 0 is the addend.
Decision added_gemm_fits(const Call& call) {
  if (call.type(1).elements() == 0 || call.type(2).elements() == 0) return Decision::no("is empty");
  return any_call(call);
}

int64_t matmul_workspace(const Call& call, size_t first) {
  const std::optional<GemmCopies> copies = gemm_copies(gemm_shape(call, first));
  return kGemmWorkspace + (copies ? copies->bytes() : 0);
}

int64_t gemm_workspace(const Call& call) {
  return matmul_workspace(call, 0);
}

int64_t added_gemm_workspace(const Call& call) {
  return matmul_workspace(call, 1);
}

Decision norm_row_fits(const Call& call) {
  const int64_t length = row_length(call.type(0));
  if (length > kMaxNormRow) return Decision::no(cat("rows of ", length, " > ", kMaxNormRow));
  return vector_rows(call, length);
}

// The partial sums of a sum over the rows of operand 0.
int64_t sum_rows_workspace(const Call& call) {
  return row_lanes(row_length(call.type(0))) * row_length(call.type(0)) * kFloatBytes;
}

int64_t three_sums_workspace(const Call& call) {
  return 3 * sum_rows_workspace(call);
}

Decision head_fits(const Call& call, int64_t head_dim) {
  if (head_dim > kMaxHeadDim) return Decision::no(cat("head dim ", head_dim, " > ", kMaxHeadDim));
  return any_call(call);
}

Decision rope_fits(const Call& call) {
  return head_fits(call, call.int_attr("head_dim"));
}

int64_t qk_head_dim(const Call& call) {
  const int64_t heads = call.int_attr("heads") + 2 * call.int_attr("kv_heads");
  return row_length(call.type("x")) / heads;
}

Decision qk_norm_fits(const Call& call) {
  return head_fits(call, qk_head_dim(call));
}

int64_t qk_norm_grad_workspace(const Call& call) {
  return 2 * kQkNormLanes * qk_head_dim(call) * kFloatBytes;
}

Decision table_rope_fits(const Call& call) {
  Decision head = rope_fits(call);
  if (!head.allowed) return head;
  if (call.bool_attr("interleaved")) return Decision::no("pairs of neighbours");
  if (call.int_attr("rotary_dim") > 0) return Decision::no("heads rotated in part");
  if (row_length(call.type(0)) % kVector != 0) return vector_results(call);
  return vector_rows(call, call.int_attr("head_dim") / 2);
}

int64_t attention_head_dim(const Call& call, const TensorType& qkv) {
  return attention_heads(call, row_length(qkv), true).dim;
}

// The larger of the heads of q and k, and of v.
Decision larger_head_fits(const Call& call, const AttentionHeads& heads) {
  return head_fits(call, std::max(heads.dim, heads.value_dim));
}

Decision attention_fits(const Call& call) {
  return larger_head_fits(call, attention_heads(call, row_length(call.type(0)), true));
}

// q comes first in a context_attention, second in its gradient.
template <size_t kOperand>
Decision context_attention_fits(const Call& call) {
  return larger_head_fits(call, attention_heads(call, row_length(call.type(kOperand)), false));
}

int64_t context_attention_grad_workspace(const Call& call) {
  return count(call.type("lse").shape) * kFloatBytes;
}

Decision attention_grad_fits(const Call& call) {
  return larger_head_fits(call, attention_heads(call, row_length(call.type(1)), true));
}

Decision heads_are_alike(const Call& call, const TensorType& qkv) {
  const AttentionHeads heads = attention_heads(call, row_length(qkv), true);
  if (heads.dim == heads.value_dim) return Decision::yes();
  return Decision::no(cat("values of ", heads.value_dim, ", keys of ", heads.dim));
}

Decision tiled_heads_fit(const Call& call, const TensorType& qkv) {
  Decision alike = heads_are_alike(call, qkv);
  if (!alike.allowed) return alike;
  const int64_t head_dim = attention_head_dim(call, qkv);
  if (head_dim % kVector != 0 || head_dim > kMaxTileDim) {
    return Decision::no(
        cat("head dim ", head_dim, ", expected a multiple of ", kVector, " up to ", kMaxTileDim));
  }
  return any_call(call);
}

Decision tiled_attention_fits(const Call& call) {
  return tiled_heads_fit(call, call.type(0));
}

Decision tiled_attention_grad_fits(const Call& call) {
  return tiled_heads_fit(call, call.type(1));
}

Decision half_heads_fit(const Call& call, const TensorType& qkv) {
  if (qkv.dtype != DType::BF16 && qkv.dtype != DType::F16) {
    return Decision::no(cat(dtype_name(qkv.dtype), ", expected bf16 or f16"));
  }
  Decision alike = heads_are_alike(call, qkv);
  if (!alike.allowed) return alike;
  if (call.double_attr("dropout") > 0) return Decision::no("dropout");
  if (call.double_attr("scale") > 0) return Decision::no("a scale of its own");
  if (call.int_attr("chunk") > 0) return Decision::no("chunks");
  const int64_t head_dim = attention_head_dim(call, qkv);
  if (head_dim != 64 && head_dim != 128) {
    return Decision::no(cat("head dim ", head_dim, ", expected 64 or 128"));
  }
  return Decision::yes();
}

Decision cudnn_fits(const Call& call, const TensorType& qkv) {
  Decision heads = half_heads_fit(call, qkv);
  if (!heads.allowed) return heads;
  if (qkv.shape.at(1) % 64 != 0) {
    return Decision::no(cat("length ", qkv.shape.at(1), ", not a multiple of 64"));
  }
  return Decision::yes();
}

Decision cudnn_attention_fits(const Call& call) {
  return cudnn_fits(call, call.type(0));
}

Decision cudnn_attention_grad_fits(const Call& call) {
  return cudnn_fits(call, call.type(1));
}

Decision hopper_attention_grad_fits(const Call& call) {
  if (!WEFT_HOPPER) return Decision::no("not built for Hopper only");
  return half_heads_fit(call, call.type(1));
}

// The length of a sequence, rounded up to tiles of 128 queries or keys.
int64_t tiled_length(const TensorType& qkv) {
  return (qkv.shape.at(1) + 127) / 128 * 128;
}

// Per query two statistics and an f32 row of dq, and the turn counters of at most four parts per
// 128 queries.
int64_t hopper_attention_grad_workspace(const Call& call) {
  const int64_t rows =
      call.type(1).shape.at(0) * call.int_attr("heads") * tiled_length(call.type(1));
  return (rows * (attention_head_dim(call, call.type(1)) + 2) + rows / 32) * kFloatBytes;
}

// Bytes of ds = [heads of a key-value head, length, length] in the half type.
int64_t attention_pair_bytes(const Call& call) {
  const int64_t length = tiled_length(call.type(1));
  return call.int_attr("heads") / call.int_attr("kv_heads") * length * length * 2;
}

// Also delta, and the gradients of k and v of every query head.
int64_t cudnn_attention_grad_workspace(const Call& call) {
  const AttentionPart part = attention_grad_part(call);
  const int64_t groups = part.samples * part.kv_heads;
  const int64_t heads = groups * (call.int_attr("heads") / call.int_attr("kv_heads"));
  const int64_t length = tiled_length(call.type(1));
  const int64_t head_dim = attention_head_dim(call, call.type(1));
  return groups * attention_pair_bytes(call) + heads * length * (kFloatBytes + 8 * head_dim) +
         kCudnnWorkspace;
}

int64_t cudnn_attention_workspace(const Call&) {
  return kCudnnWorkspace;
}

int64_t attention_grad_workspace(const Call& call) {
  return count(call.type(3).shape) * kFloatBytes;
}

// The losses of the rows.
int64_t cross_entropy_workspace(const Call& call) {
  return count(call.type(1).shape) * kFloatBytes;
}

// The losses of the tokens.
int64_t router_loss_workspace(const Call& call) {
  return row_count(call.type(0)) * kFloatBytes;
}

int64_t adamw_workspace(const Call& call) {
  return static_cast<int64_t>(call.ints_attr("decayed").size() * sizeof(int64_t));
}

Decision parts_fit(const Call& call) {
  return parts_supported(kernels(), call);
}

int64_t parts_workspace(const Call& call) {
  return parts_workspace(kernels(), call);
}

void launch_fused_parts(const Launch& launch) {
  launch_parts(kernels(), launch);
}

// Shared memory of a block that needs no opt-in.
constexpr int64_t kSharedBytes = 48 << 10;

Decision router_fits(const Call& call) {
  if (router_shared(call) > kSharedBytes) {
    return Decision::no(cat(row_length(call.type("logits")),
                            " experts, which with the groups take ", router_shared(call),
                            " bytes of shared memory > ", kSharedBytes));
  }
  return any_call(call);
}

Decision route_fits(const Call& call) {
  const int64_t experts = call.int_attr("experts");
  if (experts > kMaxRouteExperts) {
    return Decision::no(cat(experts, " experts > ", kMaxRouteExperts));
  }
  return any_call(call);
}

Decision expert_counts_fits(const Call& call) {
  const int64_t experts = call.int_attr("experts");
  if (experts * 4 > kSharedBytes)
    return Decision::no(cat(experts, " experts > ", kSharedBytes / 4));
  return any_call(call);
}

// Counts of every chunk, and where each expert starts.
int64_t route_workspace(const Call& call) {
  return call.int_attr("sources") * (route_chunks(call) + 1) * call.int_attr("experts") * 4;
}

Decision grouped_matmul_fits(const Call& call) {
  const Shape& offsets = call.type("offsets").shape;
  const int64_t groups = offsets[0] * offsets[1] * (offsets[2] - 1);
  if (groups > kMaxRowGroups) {
    return Decision::no(
        cat(groups, " groups of rows, one per source and expert, > ", kMaxRowGroups));
  }
  return any_call(call);
}

Decision grouped_grad_fits(const Call& call) {
  const int64_t sources = call.type("a").shape[0];
  if (sources > int64_t{1} << kSourceLevels) {
    return Decision::no(cat(sources, " sources > ", int64_t{1} << kSourceLevels));
  }
  return any_call(call);
}

// Matrix units take half types in rows of eight.
Decision tensor_rows(const Call& call, int64_t left, int64_t right, Decision fits) {
  if (!fits.allowed) return fits;
  if (call.type(0).dtype == DType::F32) return Decision::no("f32, expected bf16 or f16");
  const Decision first = vector_rows(call, left);
  return first.allowed ? vector_rows(call, right) : first;
}

Decision tensor_grouped_matmul_fits(const Call& call) {
  return tensor_rows(call, row_length(call.type("rows")), row_length(call.results.at(0)),
                     grouped_matmul_fits(call));
}

Decision tensor_grouped_grad_fits(const Call& call) {
  const DType out = call.results.at(0).dtype;
  if (out != call.type("a").dtype && out != DType::F32) {
    return Decision::no("the result has another half type");
  }
  return tensor_rows(call, row_length(call.type("a")), row_length(call.type("b")),
                     grouped_grad_fits(call));
}

using LaunchFunction = void (*)(const Launch&);

void launch_absent(const Launch&) {
  CHECK(false, "this build contains no code for the kernel");
}

// A build without CUDA, which only plans, does not refer to the launch functions: nothing defines
// them.
constexpr Kernel row(std::string_view op, std::string_view name, LaunchFunction launch,
                     Decision (*supports)(const Call&),
                     int64_t (*workspace)(const Call&) = nullptr) {
  return {op, name, supports, workspace, WEFT_HAS_CUDA ? launch : launch_absent};
}

// The same for the rows that refuse every call in builds for other GPUs.
constexpr LaunchFunction on_hopper(LaunchFunction launch) {
  return WEFT_HOPPER ? launch : launch_absent;
}

constexpr Kernel kKernels[] = {
    row("add", "vector_add", launch_vector_add, vector_elements),
    row("add", "plain_add", launch_add, any_call),
    row("add_in_place", "vector_add_in_place", launch_vector_add, vector_elements),
    row("add_in_place", "plain_add_in_place", launch_add, any_call),
    row("split_time", "plain_split_time", launch_split_time, any_call),
    row("concat_time", "plain_concat_time", launch_concat_time, any_call),
    row("qk_norm", "warp_qk_norm", launch_qk_norm, qk_norm_fits),
    row("qk_norm_grad", "warp_qk_norm_grad", launch_qk_norm_grad, qk_norm_fits,
        qk_norm_grad_workspace),
    row("qk_unit_norm", "warp_qk_unit_norm", launch_qk_norm, qk_norm_fits),
    row("qk_unit_norm_grad", "warp_qk_unit_norm_grad", launch_qk_norm_grad, qk_norm_fits),
    row("repeat_kv", "plain_repeat_kv", launch_repeat_kv, any_call),
    row("repeat_kv_grad", "plain_repeat_kv_grad", launch_repeat_kv_grad, any_call),
    row("split_qkv", "plain_split_qkv", launch_split_columns, any_call),
    row("concat_qkv", "plain_concat_qkv", launch_concat_columns, any_call),
    row("split_columns", "plain_split_columns", launch_split_columns, any_call),
    row("concat_columns", "plain_concat_columns", launch_concat_columns, any_call),
    row("latent_qkv", "plain_latent_qkv", launch_latent_qkv, any_call),
    row("latent_qkv_grad", "plain_latent_qkv_grad", launch_latent_qkv_grad, any_call),
    row("take_shard", "plain_take_shard", launch_take_shard, any_call),
    row("to_partial", "plain_to_partial", launch_to_partial, any_call),
    row("cast", "vector_cast", launch_vector_cast, vector_elements),
    row("cast", "plain_cast", launch_cast, any_call),
    row("gelu", "vector_gelu", launch_vector_gelu, vector_elements),
    row("gelu", "plain_gelu", launch_gelu, any_call),
    row("gelu_grad", "vector_gelu_grad", launch_vector_gelu_grad, vector_elements),
    row("gelu_grad", "plain_gelu_grad", launch_gelu_grad, any_call),
    row("dropout", "vector_dropout", launch_vector_dropout, vector_dropout_fits),
    row("dropout", "plain_dropout", launch_dropout, any_call),
    row("shard_rng", "plain_shard_rng", launch_shard_rng, any_call),
    row("matmul", "cublaslt_matmul", launch_cublaslt_matmul, gemm_fits, gemm_workspace),
    row("matmul", "plain_matmul", launch_matmul, any_call),
    row("sum_rows", "tiled_sum_rows", launch_tiled_sum_rows, vector_operand<0>, sum_rows_workspace),
    row("sum_rows", "plain_sum_rows", launch_sum_rows, any_call),
    row("layer_norm", "row_layer_norm", launch_row_norm, norm_row_fits),
    row("layer_norm", "plain_layer_norm", launch_layer_norm, any_call),
    row("layer_norm_grad", "row_layer_norm_grad", launch_row_layer_norm_grad, norm_row_fits,
        sum_rows_workspace),
    row("layer_norm_grad", "plain_layer_norm_grad", launch_layer_norm_grad, any_call),
    row("rms_norm", "row_rms_norm", launch_row_norm, norm_row_fits),
    row("rms_norm", "plain_rms_norm", launch_rms_norm, any_call),
    row("rms_norm_grad", "row_rms_norm_grad", launch_row_rms_norm_grad, norm_row_fits,
        sum_rows_workspace),
    row("rms_norm_grad", "plain_rms_norm_grad", launch_rms_norm_grad, any_call),
    row("swiglu", "vector_swiglu", launch_vector_swiglu, vector_results),
    row("swiglu", "plain_swiglu", launch_swiglu, any_call),
    row("swiglu_grad", "vector_swiglu_grad", launch_vector_swiglu_grad, vector_operand<0>),
    row("swiglu_grad", "plain_swiglu_grad", launch_swiglu_grad, any_call),
    row("rope", "table_rope", launch_table_rope, table_rope_fits),
    row("rope", "plain_rope", launch_rope, rope_fits),
    row("scale_queries", "plain_scale_queries", launch_scale_queries, any_call),
    row("attention", "cudnn_attention", launch_cudnn_attention, cudnn_attention_fits,
        cudnn_attention_workspace),
    row("attention", "tiled_attention", launch_tiled_attention, tiled_attention_fits),
    row("attention", "plain_attention", launch_attention, attention_fits),
    row("attention_grad", "hopper_attention_grad", on_hopper(launch_hopper_attention_grad),
        hopper_attention_grad_fits, hopper_attention_grad_workspace),
    row("attention_grad", "cudnn_attention_grad", launch_cudnn_attention_grad,
        cudnn_attention_grad_fits, cudnn_attention_grad_workspace),
    row("attention_grad", "tiled_attention_grad", launch_tiled_attention_grad,
        tiled_attention_grad_fits, attention_grad_workspace),
    row("attention_grad", "plain_attention_grad", launch_attention_grad, attention_grad_fits,
        attention_grad_workspace),
    row("document_attention", "tiled_document_attention", launch_tiled_document_attention,
        tiled_attention_fits),
    row("document_attention", "plain_document_attention", launch_document_attention,
        attention_fits),
    row("document_attention_grad", "tiled_document_attention_grad",
        launch_tiled_document_attention_grad, tiled_attention_grad_fits, attention_grad_workspace),
    row("document_attention_grad", "plain_document_attention_grad", launch_document_attention_grad,
        attention_grad_fits, attention_grad_workspace),
    row("context_attention", "plain_context_attention", launch_context_attention,
        context_attention_fits<0>),
    row("context_attention_more", "plain_context_attention_more", launch_context_attention_more,
        context_attention_fits<0>),
    row("context_attention_grad", "plain_context_attention_grad", launch_context_attention_grad,
        context_attention_fits<1>, context_attention_grad_workspace),
    row("embedding", "vector_embedding", launch_vector_embedding, vector_results),
    row("embedding", "plain_embedding", launch_embedding, any_call),
    row("embedding_grad", "ordered_embedding_grad", launch_ordered_embedding_grad,
        vector_operand<1>),
    row("embedding_grad", "plain_embedding_grad", launch_embedding_grad, any_call),
    row("add_bias", "plain_add_bias", launch_add_bias, any_call),
    row("add_positions", "vector_add_positions", launch_vector_add_positions, vector_results),
    row("add_positions", "plain_add_positions", launch_add_positions, any_call),
    row("add_positions_grad", "vector_add_positions_grad", launch_vector_add_positions_grad,
        vector_operand<0>),
    row("add_positions_grad", "plain_add_positions_grad", launch_add_positions_grad, any_call),
    row("cross_entropy", "online_cross_entropy", launch_online_cross_entropy, any_call,
        cross_entropy_workspace),
    row("cross_entropy_grad", "vector_cross_entropy_grad", launch_vector_cross_entropy_grad,
        vector_operand<1>),
    row("cross_entropy_grad", "plain_cross_entropy_grad", launch_cross_entropy_grad, any_call),
    row("cross_entropy_stats", "online_cross_entropy_stats", launch_online_cross_entropy_stats,
        any_call),
    row("cross_entropy_combine", "plain_cross_entropy_combine", launch_cross_entropy_combine,
        any_call, cross_entropy_workspace),
    row("matmul_add", "cublaslt_matmul_add", launch_cublaslt_matmul_add, added_gemm_fits,
        added_gemm_workspace),
    row("matmul_accumulate", "cublaslt_matmul_accumulate", launch_cublaslt_matmul_accumulate,
        added_gemm_fits, added_gemm_workspace),
    row("embedding_grad_add", "ordered_embedding_grad_add", launch_ordered_embedding_grad_add,
        vector_operand<2>),
    row("embedding_grad_add", "plain_embedding_grad_add", launch_fused_parts, parts_fit,
        parts_workspace),
    row("layer_norm_grad_sums", "row_layer_norm_grad_sums", launch_row_layer_norm_grad_sums,
        norm_row_fits, three_sums_workspace),
    row("layer_norm_grad_sums", "plain_layer_norm_grad_sums", launch_fused_parts, parts_fit,
        parts_workspace),
    row("router", "warp_router", launch_router, router_fits),
    row("router_grad", "warp_router_grad", launch_router_grad, any_call),
    row("route", "counting_route", launch_route, route_fits, route_workspace),
    row("expert_counts", "plain_expert_counts", launch_expert_counts, expert_counts_fits),
    row("lost_rows", "plain_lost_rows", launch_lost_rows, any_call),
    row("guard_norm", "plain_guard_norm", launch_guard_norm, any_call),
    row("balance_router", "plain_balance_router", launch_balance_router, any_call),
    row("router_loss", "warp_router_loss", launch_router_loss, any_call, router_loss_workspace),
    row("router_loss_grad", "warp_router_loss_grad", launch_router_loss_grad, any_call),
    row("dispatch", "vector_dispatch", launch_vector_dispatch, vector_results),
    row("dispatch", "plain_dispatch", launch_dispatch, any_call),
    row("combine", "vector_combine", launch_vector_combine, vector_results),
    row("combine", "plain_combine", launch_combine, any_call),
    row("dispatch_weights", "plain_dispatch_weights", launch_dispatch_weights, any_call),
    row("combine_weights", "plain_combine_weights", launch_combine_weights, any_call),
    row("grouped_matmul", "tensor_grouped_matmul", launch_tensor_grouped_matmul,
        tensor_grouped_matmul_fits),
    row("grouped_matmul", "plain_grouped_matmul", launch_grouped_matmul, grouped_matmul_fits),
    row("grouped_matmul_grad_w", "tensor_grouped_matmul_grad_w",
        launch_tensor_grouped_matmul_grad_w, tensor_grouped_grad_fits),
    row("grouped_matmul_grad_w", "plain_grouped_matmul_grad_w", launch_grouped_matmul_grad_w,
        grouped_grad_fits),
    row("weighted_swiglu", "vector_weighted_swiglu", launch_vector_weighted_swiglu, vector_results),
    row("weighted_swiglu", "plain_weighted_swiglu", launch_weighted_swiglu, any_call),
    row("weighted_swiglu_grad", "vector_weighted_swiglu_grad", launch_vector_weighted_swiglu_grad,
        vector_operand<0>),
    row("weighted_swiglu_grad", "plain_weighted_swiglu_grad", launch_weighted_swiglu_grad,
        any_call),
    row("scale_rows", "vector_scale_rows", launch_vector_scale_rows, vector_results),
    row("scale_rows", "plain_scale_rows", launch_scale_rows, any_call),
    row("scale_rows_grad", "vector_scale_rows_grad", launch_vector_scale_rows_grad, vector_results),
    row("scale_rows_grad", "plain_scale_rows_grad", launch_scale_rows_grad, any_call),
    row("accumulate", "vector_accumulate", launch_vector_accumulate, vector_elements),
    row("accumulate", "plain_accumulate", launch_accumulate, any_call),
    row("square_sum", "exact_square_sum", launch_square_sum, any_call),
    row("norm", "plain_norm", launch_norm, any_call),
    row("clip", "plain_clip", launch_clip, any_call),
    row("update_scale", "plain_update_scale", launch_update_scale, any_call),
    row("adamw", "vector_adamw", launch_vector_adamw, vector_elements, adamw_workspace),
    row("adamw", "plain_adamw", launch_adamw, any_call, adamw_workspace),
    row("adamw_cast", "vector_adamw_cast", launch_vector_adamw, vector_elements, adamw_workspace),
    row("adamw_cast", "plain_adamw_cast", launch_adamw, any_call, adamw_workspace),
};

}  // namespace

int64_t row_lanes(int64_t n) {
  constexpr int64_t kProcessors = 132;
  // Lanes per SM: the rows of half types that row_norm_grad has in flight, so one wave. The longest
  // rows of a given warp count have fewer in flight and take two waves.
  const int64_t at_once = n <= 1024 ? 8 : n <= 4096 ? 4 : 2;
  return at_once * kProcessors;
}

int64_t router_shared(const Call& call) {
  return kRouterWarps * (row_length(call.type("logits")) + call.int_attr("groups")) *
         static_cast<int64_t>(sizeof(int64_t));
}

int64_t route_chunks(const Call& call) {
  const int64_t choices = call.type("index").elements() / call.int_attr("sources");
  return (choices + kRouteChunk - 1) / kRouteChunk;
}

AttentionPart attention_grad_part(const Call& call) {
  const int64_t batch = call.type(1).shape.at(0);
  const int64_t kv_heads = call.int_attr("kv_heads");
  const int64_t bytes = std::max<int64_t>(attention_pair_bytes(call), 1);
  const int64_t groups = std::max<int64_t>(kAttentionPartBytes / bytes, 1);
  AttentionPart part;
  if (groups >= kv_heads) {
    part.kv_heads = kv_heads;
    part.samples = std::min(groups / kv_heads, batch);
    while (batch % part.samples != 0) --part.samples;
  } else {
    part.kv_heads = groups;
    while (kv_heads % part.kv_heads != 0) --part.kv_heads;
  }
  return part;
}

std::span<const Kernel> kernels() {
  return kKernels;
}

}  // namespace weft::cuda
