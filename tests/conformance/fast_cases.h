// Calls in addition to the op samples, with shapes at the edges of particular fast kernels: full
// and partial tiles, the longest rows that fit, misaligned rows. An op needs none here if its own
// samples reach all of its rows.
#pragma once

#include <string_view>
#include <vector>

#include "conformance/ops_under_test.h"

namespace weft {

struct FastCase {
  std::string_view op;
  std::string_view samples;
};

// clang-format off
inline constexpr FastCase kFastCases[] = {
    {"add", "a: bf16[3,264], b: bf16[3,264] | a: f32[5,2048], b: f32[5,2048]"},
    {"add_in_place", "acc: f32[5,2048], g: f32[5,2048]"},
    {"cast", "x: f32[5,2048]; dtype=bf16 | x: bf16[3,264]; dtype=f32 | x: f32[3,264]; dtype=f16"},
    {"gelu", "x: bf16[7,520] | x: f32[3,2048] | x: f16[3,264]"},
    {"gelu_grad", "dy: bf16[7,520], x: bf16[7,520] | dy: f32[3,264], x: f32[3,264]"},
    {"dropout",
     "x: bf16[3,5,64], rng: i32[4]; rate=0.3, stream=7 | x: bf16[5,40,264], rng: i32[4]; rate=0.1, stream=7 | "
     "x: f32[7,33,136], rng: i32[4]; rate=0.5, stream=7 | x: f16[2,12,8], rng: i32[4]; rate=0.999, stream=7"},
    {"matmul",
     "a: bf16[130,264], b: bf16[264,136], bias: bf16[136] | a: bf16[130,264], b: bf16[136,264]; tb=true | "
     "a: bf16[2,130,264], b: bf16[2,130,72]; ta=true, out=\"f32\" | a: f16[70,64], b: f16[64,48] | "
     "a: f32[130,264], b: f32[264,136], bias: f32[136] | a: f32[130,264], b: f32[136,264]; tb=true | "
     // Misaligned rows: of the result, of the first factor in two blocks, of all with a bias, and
     // in other forms.
     "a: bf16[2,520,520], b: bf16[1003,520]; tb=true | a: bf16[8200,521], b: bf16[521,136] | "
     "a: bf16[1031,525], b: bf16[525,1001], bias: bf16[1001] | a: f16[1001,531], b: f16[1013,531]; tb=true, out=\"f32\" | "
     "a: bf16[520,8203], b: bf16[520,136]; ta=true, out=\"f32\" | a: f16[2,260,1031], b: f16[2,260,1003]; ta=true | "
     // Too few multiplications for copies to pay off.
     "a: bf16[400,33001], b: bf16[400,16]; ta=true, out=\"f32\" | a: f16[300,5003], b: f16[300,8]; ta=true"},
    {"sum_rows", "x: bf16[1000,264]; out=\"f32\" | x: f32[333,1032] | x: bf16[40000,8]"},
    {"layer_norm",
     "x: bf16[70,768], w: bf16[768], b: bf16[768] | x: f32[9,128], w: f32[128], b: f32[128] | x: bf16[5,2048], w: bf16[2048] | "
     "x: f32[3,8192], w: f32[8192], b: f32[8192]"},
    {"layer_norm_grad",
     "dy: bf16[600,768], x: bf16[600,768], w: bf16[768], mean: f32[600], rstd: f32[600]; out=\"f32\" | "
     "dy: f32[9,128], x: f32[9,128], w: f32[128], mean: f32[9], rstd: f32[9] | "
     "dy: f32[3,8192], x: f32[3,8192], w: f32[8192], mean: f32[3], rstd: f32[3] | "
     "dy: f16[1200,1032], x: f16[1200,1032], w: f16[1032], mean: f32[1200], rstd: f32[1200] | "
     "dy: bf16[600,2312], x: bf16[600,2312], w: bf16[2312], mean: f32[600], rstd: f32[600]"},
    {"rms_norm", "x: bf16[70,2048], w: bf16[2048] | x: bf16[5,4096], w: bf16[4096] | x: f32[3,3072], w: f32[3072]"},
    {"rms_norm_grad",
     "dy: bf16[300,2048], x: bf16[300,2048], w: bf16[2048], rstd: f32[300]; out=\"f32\" | "
     "dy: f32[7,3072], x: f32[7,3072], w: f32[3072], rstd: f32[7] | "
     "dy: bf16[1100,3072], x: bf16[1100,3072], w: bf16[3072], rstd: f32[1100] | "
     "dy: f16[270,5128], x: f16[270,5128], w: f16[5128], rstd: f32[270] | "
     "dy: bf16[600,2056], x: bf16[600,2056], w: bf16[2056], rstd: f32[600]"},
    {"swiglu", "x: bf16[9,2064] | x: f32[5,144]"},
    {"swiglu_grad", "dy: bf16[9,1032], x: bf16[9,2064] | dy: f32[5,72], x: f32[5,144]"},
    {"rope",
     "x: bf16[2,70,384]; heads=5, head_dim=64, theta=500000.0, factor=8.0, original_max_position=32 | "
     "x: f32[1,33,160]; heads=4, head_dim=32, inverse=true | x: bf16[2,70,384], positions: i32[2,70]; heads=5, head_dim=64"},
    {"attention",
     "qkv: bf16[2,128,576]; heads=3, kv_heads=3 | qkv: bf16[2,192,768]; heads=8, kv_heads=2 | "
     "qkv: bf16[1,256,768]; heads=4, kv_heads=1 | qkv: f16[1,64,384]; heads=1, kv_heads=1 | "
     "qkv: bf16[1,150,96]; heads=2, kv_heads=1 | qkv: bf16[2,130,128], rng: i32[4]; heads=2, kv_heads=1, dropout=0.2, stream=5 | "
     "qkv: bf16[2,200,512], rng: i32[4]; heads=4, kv_heads=2, dropout=0.3, stream=5 | qkv: bf16[1,77,624], rng: i32[4]; heads=2, kv_heads=2, dropout=0.1, stream=5 | "
     "qkv: f16[2,65,40]; heads=3, kv_heads=1 | qkv: f16[1,141,64], rng: i32[4]; heads=2, kv_heads=1, dropout=0.1, stream=5 | "
     "qkv: f16[1,100,192]; heads=2, kv_heads=1 | qkv: f16[1,132,192], rng: i32[4]; heads=1, kv_heads=1, dropout=0.2, stream=5 | "
     "qkv: f16[1,141,480], rng: i32[4]; heads=2, kv_heads=1, dropout=0.1, stream=5 | qkv: f32[1,129,128]; heads=2, kv_heads=1 | "
     "qkv: f32[1,132,96], rng: i32[4]; heads=2, kv_heads=1, dropout=0.2, stream=5 | qkv: f32[1,100,192]; heads=2, kv_heads=1 | "
     "qkv: f32[2,131,384], rng: i32[4]; heads=2, kv_heads=2, dropout=0.1, stream=5 | qkv: f32[1,200,512]; heads=2, kv_heads=1 | "
     "qkv: f32[1,201,288], rng: i32[4]; heads=1, kv_heads=1, dropout=0.2, stream=5"},
    {"attention_grad",
     "dy: bf16[2,128,192], qkv: bf16[2,128,576], y: bf16[2,128,192], lse: f32[2,3,128]; heads=3, kv_heads=3 | "
     "dy: bf16[2,192,512], qkv: bf16[2,192,768], y: bf16[2,192,512], lse: f32[2,8,192]; heads=8, kv_heads=2 | "
     "dy: bf16[1,256,512], qkv: bf16[1,256,768], y: bf16[1,256,512], lse: f32[1,4,256]; heads=4, kv_heads=1 | "
     "dy: f16[1,64,128], qkv: f16[1,64,384], y: f16[1,64,128], lse: f32[1,1,64]; heads=1, kv_heads=1 | "
     "dy: bf16[2,200,256], qkv: bf16[2,200,512], y: bf16[2,200,256], lse: f32[2,4,200]; heads=4, kv_heads=2 | "
     "dy: f16[1,457,256], qkv: f16[1,457,512], y: f16[1,457,256], lse: f32[1,2,457]; heads=2, kv_heads=1 | "
     "dy: bf16[1,150,48], qkv: bf16[1,150,96], y: bf16[1,150,48], lse: f32[1,2,150]; heads=2, kv_heads=1 | "
     "dy: bf16[2,130,64], qkv: bf16[2,130,128], y: bf16[2,130,64], lse: f32[2,2,130], rng: i32[4]; heads=2, kv_heads=1, dropout=0.2, stream=5 | "
     "dy: bf16[2,200,256], qkv: bf16[2,200,512], y: bf16[2,200,256], lse: f32[2,4,200], rng: i32[4]; heads=4, kv_heads=2, dropout=0.3, stream=5 | "
     "dy: bf16[1,77,208], qkv: bf16[1,77,624], y: bf16[1,77,208], lse: f32[1,2,77], rng: i32[4]; heads=2, kv_heads=2, dropout=0.1, stream=5 | "
     "dy: f16[2,65,24], qkv: f16[2,65,40], y: f16[2,65,24], lse: f32[2,3,65]; heads=3, kv_heads=1 | "
     "dy: f16[1,141,32], qkv: f16[1,141,64], y: f16[1,141,32], lse: f32[1,2,141], rng: i32[4]; heads=2, kv_heads=1, dropout=0.1, stream=5 | "
     "dy: f16[1,100,96], qkv: f16[1,100,192], y: f16[1,100,96], lse: f32[1,2,100]; heads=2, kv_heads=1 | "
     "dy: f16[1,132,64], qkv: f16[1,132,192], y: f16[1,132,64], lse: f32[1,1,132], rng: i32[4]; heads=1, kv_heads=1, dropout=0.2, stream=5 | "
     "dy: f16[1,141,240], qkv: f16[1,141,480], y: f16[1,141,240], lse: f32[1,2,141], rng: i32[4]; heads=2, kv_heads=1, dropout=0.1, stream=5 | "
     "dy: f32[1,129,64], qkv: f32[1,129,128], y: f32[1,129,64], lse: f32[1,2,129]; heads=2, kv_heads=1 | "
     "dy: f32[1,132,48], qkv: f32[1,132,96], y: f32[1,132,48], lse: f32[1,2,132], rng: i32[4]; heads=2, kv_heads=1, dropout=0.2, stream=5 | "
     "dy: f32[1,100,96], qkv: f32[1,100,192], y: f32[1,100,96], lse: f32[1,2,100]; heads=2, kv_heads=1 | "
     "dy: f32[2,131,128], qkv: f32[2,131,384], y: f32[2,131,128], lse: f32[2,2,131], rng: i32[4]; heads=2, kv_heads=2, dropout=0.1, stream=5 | "
     "dy: f32[1,200,256], qkv: f32[1,200,512], y: f32[1,200,256], lse: f32[1,2,200]; heads=2, kv_heads=1 | "
     "dy: f32[1,201,96], qkv: f32[1,201,288], y: f32[1,201,96], lse: f32[1,1,201], rng: i32[4]; heads=1, kv_heads=1, dropout=0.2, stream=5"},
    {"document_attention",
     "qkv: bf16[3,331,256], positions: i32[3,331]; heads=2, kv_heads=1 | qkv: bf16[3,263,96], positions: i32[3,263], rng: i32[4]; heads=1, kv_heads=1, dropout=0.1, stream=5 | "
     "qkv: f16[3,260,384], positions: i32[3,260], rng: i32[4]; heads=1, kv_heads=1, dropout=0.1, stream=5 | qkv: f16[2,196,160], positions: i32[2,196]; heads=2, kv_heads=1 | "
     "qkv: f32[3,261,384], positions: i32[3,261], rng: i32[4]; heads=1, kv_heads=1, dropout=0.1, stream=5 | qkv: f32[3,200,256], positions: i32[3,200]; heads=2, kv_heads=1"},
    {"document_attention_grad",
     "dy: bf16[3,331,128], qkv: bf16[3,331,256], y: bf16[3,331,128], lse: f32[3,2,331], positions: i32[3,331]; heads=2, kv_heads=1 | "
     "dy: bf16[3,263,32], qkv: bf16[3,263,96], y: bf16[3,263,32], lse: f32[3,1,263], positions: i32[3,263], rng: i32[4]; heads=1, kv_heads=1, dropout=0.1, stream=5 | "
     "dy: f16[3,260,128], qkv: f16[3,260,384], y: f16[3,260,128], lse: f32[3,1,260], positions: i32[3,260], rng: i32[4]; heads=1, kv_heads=1, dropout=0.1, stream=5 | "
     "dy: f16[2,196,80], qkv: f16[2,196,160], y: f16[2,196,80], lse: f32[2,2,196], positions: i32[2,196]; heads=2, kv_heads=1 | "
     "dy: f32[3,261,128], qkv: f32[3,261,384], y: f32[3,261,128], lse: f32[3,1,261], positions: i32[3,261], rng: i32[4]; heads=1, kv_heads=1, dropout=0.1, stream=5 | "
     "dy: f32[3,200,128], qkv: f32[3,200,256], y: f32[3,200,128], lse: f32[3,2,200], positions: i32[3,200]; heads=2, kv_heads=1"},
    {"embedding", "ids: i32[4,131], w: bf16[67,72] | ids: i32[5], w: f32[9,8] | ids: i32[4,131], w: bf16[67,72], coordinate: i32[]"},
    {"embedding_grad",
     "ids: i32[4,300], dy: bf16[4,300,1032]; rows=67, out=\"f32\" | ids: i32[700], dy: f32[700,8]; rows=3 | "
     "ids: i32[4,300], dy: bf16[4,300,1032], coordinate: i32[]; rows=67, out=\"f32\""},
    {"add_positions", "x: bf16[3,9,64], w: bf16[12,64]"},
    {"add_positions_grad", "dy: bf16[9,5,64]; rows=8, out=\"f32\""},
    {"cross_entropy",
     "logits: bf16[70,5008], targets: i32[70], count: f32[] | logits: f32[9,264], targets: i32[9], count: f32[] | "
     "logits: bf16[5,50304], targets: i32[5], count: f32[] | logits: bf16[70,5009], targets: i32[70], count: f32[] | "
     "logits: f32[9,5], targets: i32[9], count: f32[] | logits: f16[3,49152], targets: i32[3], count: f32[] | "
     "logits: bf16[2,128256], targets: i32[2], count: f32[] | logits: bf16[1,300000], targets: i32[1], count: f32[] | "
     "logits: bf16[9,50257], targets: i32[9], count: f32[]"},
    {"cross_entropy_grad",
     "dloss: f32[], logits: bf16[70,5008], targets: i32[70], lse: f32[70], count: f32[] | "
     "dloss: f32[], logits: f32[9,264], targets: i32[9], lse: f32[9], count: f32[] | "
     "dloss: f32[], logits: bf16[2,128256], targets: i32[2], lse: f32[2], count: f32[] | "
     "dloss: f32[], logits: f16[3,32000], targets: i32[3], lse: f32[3], count: f32[] | "
     "dloss: f32[], logits: bf16[70,5008], targets: i32[70], lse: f32[70], count: f32[], coordinate: i32[]; classes=14003"},
    {"cross_entropy_stats",
     "logits: bf16[70,5008], targets: i32[70], coordinate: i32[]; classes=14003, shards=1 | "
     "logits: f32[9,5009], targets: i32[9], coordinate: i32[]; classes=5009, shards=1"},
    {"accumulate", "acc: f32[5,1032], g: bf16[5,1032], micro: i32[] | acc: f32[264], g: f32[264], micro: i32[]"},
    {"matmul_add",
     "acc: f32[264,72], a: bf16[2,130,264], b: bf16[2,130,72]; ta=true | acc: f32[130,136], a: f32[130,264], b: f32[264,136] | "
     "acc: f32[1031,1003], a: bf16[520,1031], b: bf16[520,1003]; ta=true"},
    {"matmul_accumulate",
     "acc: f32[264,72], a: bf16[2,130,264], b: bf16[2,130,72], micro: i32[]; ta=true | "
     "acc: f32[33001,8], a: bf16[40,33001], b: bf16[40,8], micro: i32[]; ta=true | "
     "acc: f32[8203,136], a: bf16[520,8203], b: bf16[520,136], micro: i32[]; ta=true"},
    {"embedding_grad_add", "acc: f32[67,1032], ids: i32[4,300], dy: bf16[4,300,1032]; rows=67"},
    {"layer_norm_grad_sums",
     "dy: bf16[3000,768], x: bf16[3000,768], w: bf16[768], mean: f32[3000], rstd: f32[3000], more: bf16[3000,768]; out=\"f32\" | "
     "dy: bf16[600,768], x: bf16[600,768], w: bf16[768], mean: f32[600], rstd: f32[600]; out=\"f32\" | "
     "dy: f32[9,128], x: f32[9,128], w: f32[128], mean: f32[9], rstd: f32[9], more: f32[9,128] | "
     "dy: f32[3,8192], x: f32[3,8192], w: f32[8192], mean: f32[3], rstd: f32[3], more: f32[3,8192] | "
     "dy: bf16[1100,1000], x: bf16[1100,1000], w: bf16[1000], mean: f32[1100], rstd: f32[1100], more: bf16[1100,1000]; out=\"f32\""},
    {"square_sum", "g: f32[40008], g: bf16[3,1024], g: f32[1]"},
    {"adamw",
     "w: f32[33,1032], g: f32[33,1032], m: f32[33,1032], v: f32[33,1032], lr: f32[], coefficient: f32[], count: i32[]; decay=0.1 | "
     "w: f32[4096], g: bf16[4096], m: f32[4096], v: f32[4096], lr: f32[], coefficient: f32[], count: i32[]; decay=0.1, decayed=[0,1024,3072,4096]"},
    {"adamw_cast",
     "w: f32[33,1032], g: f32[33,1032], m: f32[33,1032], v: f32[33,1032], lr: f32[], coefficient: f32[], count: i32[], low: bf16[33,1032]; decay=0.1 | "
     "w: f32[4096], g: bf16[4096], m: f32[4096], v: f32[4096], lr: f32[], coefficient: f32[], count: i32[], low: f16[4096]; decay=0.1, decayed=[0,1024,3072,4096]"},
    {"router",
     "logits: f32[2,300,130]; top_k=8 | logits: f32[1,77,256], bias: f32[256]; top_k=8, sigmoid=true, normalize=true, groups=8, keep_groups=4, scale=2.5 | "
     "logits: f32[1,5,40]; top_k=37, normalize=true"},
    {"router_grad", "d_weights: f32[2,300,8], logits: f32[2,300,130], index: i32[2,300,8], weights: f32[2,300,8]; normalize=true"},
    {"route", "index: i32[4,700,6]; experts=64, slots=250, parts=8, sources=2 | index: i32[1,2100,8]; experts=128, slots=16800"},
    {"dispatch", "x: bf16[4,33,1032], at: i32[4,33,3]; slots=120, parts=2, sources=2 | x: f32[1,9,8], at: i32[1,9,1]; slots=9"},
    {"combine", "rows: bf16[2,2,120,1032], at: i32[4,33,3] | rows: f32[1,1,60,264], at: i32[2,7,4] | rows: f16[1,1,60,2312], at: i32[2,7,4]"},
    {"grouped_matmul",
     "rows: bf16[2,2,300,136], offsets: i32[2,2,5], w: bf16[8,264,136]; tb=true | rows: bf16[1,1,700,520], offsets: i32[1,1,4], w: bf16[3,520,200] | "
     "rows: f16[3,1,140,72], offsets: i32[3,1,7], w: f16[6,72,136] | rows: f16[1,1,130,24], offsets: i32[1,1,2], w: f16[1,8,24]; tb=true | "
     "rows: f32[1,2,150,72], offsets: i32[1,2,4], w: f32[6,136,72]; tb=true"},
    {"grouped_matmul_grad_w",
     "a: bf16[3,2,150,136], b: bf16[3,2,150,264], offsets: i32[3,2,4]; out=\"f32\" | a: f16[7,1,100,72], b: f16[7,1,100,136], offsets: i32[7,1,4] | "
     "a: bf16[1,1,700,264], b: bf16[1,1,700,72], offsets: i32[1,1,9] | a: f32[5,1,100,72], b: f32[5,1,100,136], offsets: i32[5,1,4]"},
    {"weighted_swiglu", "x: bf16[2,2,30,1040], offsets: i32[2,2,4], w: f32[2,2,30] | x: f32[1,1,9,144], offsets: i32[1,1,3], w: f32[1,1,9]"},
    {"weighted_swiglu_grad",
     "dy: bf16[2,2,30,520], x: bf16[2,2,30,1040], offsets: i32[2,2,4], w: f32[2,2,30] | dy: f32[1,1,9,72], x: f32[1,1,9,144], offsets: i32[1,1,3], w: f32[1,1,9]"},
    {"scale_rows", "x: bf16[3,9,264], w: f32[3,9,1] | x: f32[5,72], w: f32[5,1]"},
    {"scale_rows_grad", "dy: bf16[3,9,264], x: bf16[3,9,264], w: f32[3,9,1] | dy: f32[5,72], x: f32[5,72], w: f32[5,1]"},
};
// clang-format on

// The cases of this op.
inline std::vector<Call> fast_calls(const OpDef& op) {
  std::vector<Call> calls;
  for (const FastCase& fast : kFastCases) {
    if (fast.op != op.name()) continue;
    for (Call& call : parse_samples(op, fast.samples)) calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace weft
