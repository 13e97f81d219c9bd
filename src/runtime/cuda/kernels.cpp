// The kernel table of the CUDA backend and what its rows accept.
#include "runtime/cuda/kernels.h"

#include "runtime/cuda/elementwise_program.h"

namespace weft::cuda {

namespace {

// Every row reads and writes f32, bf16 and f16; integers stand where the op asks for them.
Decision any_call(const Call& call) {
  for (const auto* types : {&call.operands, &call.results}) {
    for (const TensorType& type : *types) {
      if (type.dtype == DType::F64) return Decision::no("f64 is not supported");
    }
  }
  return Decision::yes();
}

Decision program_fits(const Call& call) {
  try {
    elementwise_program(call);
  } catch (const UserError& error) {
    return Decision::no(error.what());
  }
  return any_call(call);
}

Decision head_fits(const Call& call, int64_t head_dim) {
  if (head_dim > kMaxHeadDim) return Decision::no(cat("head dim ", head_dim, " > ", kMaxHeadDim));
  return any_call(call);
}

Decision rope_fits(const Call& call) {
  return head_fits(call, call.int_attr("head_dim"));
}

int64_t attention_head_dim(const Call& call, const TensorType& qkv) {
  return qkv.shape.at(2) / (call.int_attr("heads") + 2 * call.int_attr("kv_heads"));
}

Decision attention_fits(const Call& call) {
  return head_fits(call, attention_head_dim(call, call.type(0)));
}

Decision attention_grad_fits(const Call& call) {
  return head_fits(call, attention_head_dim(call, call.type(1)));
}

constexpr Kernel kKernels[] = {
    {"add", "plain_add", program_fits, nullptr, launch_elementwise},
    {"cast", "plain_cast", program_fits, nullptr, launch_elementwise},
    {"gelu", "plain_gelu", program_fits, nullptr, launch_elementwise},
    {"gelu_grad", "plain_gelu_grad", program_fits, nullptr, launch_elementwise},
    {"dropout", "plain_dropout", program_fits, nullptr, launch_elementwise},
    {"fused", "plain_fused", program_fits, nullptr, launch_elementwise},
    {"matmul", "plain_matmul", any_call, nullptr, launch_matmul},
    {"sum_rows", "plain_sum_rows", any_call, nullptr, launch_sum_rows},
    {"layer_norm", "plain_layer_norm", any_call, nullptr, launch_layer_norm},
    {"layer_norm_grad", "plain_layer_norm_grad", any_call, nullptr, launch_layer_norm_grad},
    {"rms_norm", "plain_rms_norm", any_call, nullptr, launch_rms_norm},
    {"rms_norm_grad", "plain_rms_norm_grad", any_call, nullptr, launch_rms_norm_grad},
    {"swiglu", "plain_swiglu", any_call, nullptr, launch_swiglu},
    {"swiglu_grad", "plain_swiglu_grad", any_call, nullptr, launch_swiglu_grad},
    {"rope", "plain_rope", rope_fits, nullptr, launch_rope},
    {"attention", "plain_attention", attention_fits, nullptr, launch_attention},
    {"attention_grad", "plain_attention_grad", attention_grad_fits, attention_grad_workspace,
     launch_attention_grad},
    {"embedding", "plain_embedding", any_call, nullptr, launch_embedding},
    {"embedding_grad", "plain_embedding_grad", any_call, nullptr, launch_embedding_grad},
    {"add_positions", "plain_add_positions", any_call, nullptr, launch_add_positions},
    {"add_positions_grad", "plain_add_positions_grad", any_call, nullptr,
     launch_add_positions_grad},
    {"cross_entropy", "plain_cross_entropy", any_call, cross_entropy_workspace,
     launch_cross_entropy},
    {"cross_entropy_grad", "plain_cross_entropy_grad", any_call, nullptr,
     launch_cross_entropy_grad},
    {"accumulate", "plain_accumulate", any_call, nullptr, launch_accumulate},
    {"square_sum", "plain_square_sum", any_call, nullptr, launch_square_sum},
    {"norm", "plain_norm", any_call, nullptr, launch_norm},
    {"clip", "plain_clip", any_call, nullptr, launch_clip},
    {"update_scale", "plain_update_scale", any_call, nullptr, launch_update_scale},
    {"adamw", "plain_adamw", any_call, adamw_workspace, launch_adamw},
};

}  // namespace

std::span<const Kernel> kernels() {
  return kKernels;
}

}  // namespace weft::cuda
