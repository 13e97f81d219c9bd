// The launch functions behind the table, by the file that defines them.
#pragma once

#include "plan/kernel.h"

namespace weft::reference {

// elementwise.cpp
void add(const Launch&);
void cast(const Launch&);
void gelu(const Launch&);
void gelu_grad(const Launch&);
void dropout(const Launch&);
void shard_rng(const Launch&);

// matmul.cpp
void matmul(const Launch&);
void sum_rows(const Launch&);

// layers.cpp
void layer_norm(const Launch&);
void layer_norm_grad(const Launch&);
void rms_norm(const Launch&);
void rms_norm_grad(const Launch&);
void swiglu(const Launch&);
void swiglu_grad(const Launch&);

// rope.cpp
void rope(const Launch&);
void scale_queries(const Launch&);

// attention.cpp
void attention(const Launch&);
void attention_grad(const Launch&);
void document_attention(const Launch&);
void document_attention_grad(const Launch&);
void context_attention(const Launch&);
void context_attention_more(const Launch&);
void context_attention_grad(const Launch&);
void qk_norm(const Launch&);
void qk_norm_grad(const Launch&);
void repeat_kv(const Launch&);
void repeat_kv_grad(const Launch&);
void split_columns(const Launch&);
void concat_columns(const Launch&);
void latent_qkv(const Launch&);
void latent_qkv_grad(const Launch&);

// experts.cpp
void router(const Launch&);
void router_grad(const Launch&);
void route(const Launch&);
void expert_counts(const Launch&);
void lost_rows(const Launch&);
void guard_norm(const Launch&);
void balance_router(const Launch&);
void router_loss(const Launch&);
void router_loss_grad(const Launch&);
void dispatch(const Launch&);
void combine(const Launch&);
void dispatch_weights(const Launch&);
void combine_weights(const Launch&);
void grouped_matmul(const Launch&);
void grouped_matmul_grad_w(const Launch&);
void weighted_swiglu(const Launch&);
void weighted_swiglu_grad(const Launch&);
void scale_rows(const Launch&);
void scale_rows_grad(const Launch&);

// training.cpp
void embedding(const Launch&);
void embedding_grad(const Launch&);
void add_bias(const Launch&);
void add_positions(const Launch&);
void add_positions_grad(const Launch&);
void cross_entropy(const Launch&);
void cross_entropy_grad(const Launch&);
void cross_entropy_stats(const Launch&);
void cross_entropy_combine(const Launch&);
void split_time(const Launch&);
void concat_time(const Launch&);
void take_shard(const Launch&);
void to_partial(const Launch&);
void accumulate(const Launch&);
void square_sum(const Launch&);
void norm(const Launch&);
void clip(const Launch&);
void update_scale(const Launch&);
void adamw(const Launch&);

}  // namespace weft::reference
