// Calls whose shapes exceed the tiles, chunks and blocks of the cpu kernels, unlike the op samples,
// and leave the last one partly full.
#pragma once

#include <string_view>
#include <vector>

#include "graph/samples.h"

namespace weft {

struct LargeCase {
  std::string_view op;
  std::string_view samples;
};

// clang-format off
inline constexpr LargeCase kLargeCases[] = {
    {"matmul",
     "a: f32[101,197], b: f32[197,263], bias: f32[263] | a: f32[2,97,385], b: f32[261,385]; tb=true | "
     "a: f32[7,67,33], b: f32[7,67,289]; ta=true | a: bf16[99,200], b: bf16[200,260], bias: bf16[260] | "
     "a: bf16[193,98], b: bf16[193,35]; ta=true, out=\"f32\" | a: f16[13,7], b: f16[33,7]; tb=true | "
     "a: f32[5,3100], b: f32[3100,700] | a: bf16[3,3105], b: bf16[700,3105], bias: bf16[700]; tb=true"},
    {"sum_rows", "x: f32[333,1030] | x: bf16[130,17]; out=\"f32\""},
    {"gelu", "x: f32[17,2111] | x: f16[3,1025]"},
    {"gelu_grad", "dy: f32[17,2111], x: f32[17,2111] | dy: bf16[3,1025], x: bf16[3,1025]"},
    {"dropout", "x: f32[3,77,411], rng: i32[4]; rate=0.3, stream=7"},
    {"layer_norm", "x: f32[131,1037], w: f32[1037], b: f32[1037] | x: bf16[70,300], w: bf16[300]"},
    {"layer_norm_grad",
     "dy: f32[131,1037], x: f32[131,1037], w: f32[1037], mean: f32[131], rstd: f32[131] | "
     "dy: bf16[70,300], x: bf16[70,300], w: bf16[300], mean: f32[70], rstd: f32[70]; out=\"f32\""},
    {"rms_norm", "x: f32[33,1037], w: f32[1037] | x: bf16[5,300], w: bf16[300]"},
    {"rms_norm_grad", "dy: f32[131,97], x: f32[131,97], w: f32[97], rstd: f32[131]"},
    {"swiglu", "x: f32[9,2110] | x: bf16[5,2060]"},
    {"swiglu_grad", "dy: f32[9,1055], x: f32[9,2110]"},
    {"rope", "x: f32[3,70,320]; heads=4, head_dim=64"},
    {"attention",
     "qkv: f32[2,64,96]; heads=1, kv_heads=1 | qkv: f32[2,211,160]; heads=6, kv_heads=2 | "
     "qkv: f32[2,150,48], rng: i32[4]; heads=2, kv_heads=1, dropout=0.2, stream=5 | "
     "qkv: bf16[1,100,72]; heads=1, kv_heads=1"},
    {"attention_grad",
     "dy: f32[2,64,32], qkv: f32[2,64,96], y: f32[2,64,32], lse: f32[2,1,64]; heads=1, kv_heads=1 | "
     "dy: f32[2,211,96], qkv: f32[2,211,160], y: f32[2,211,96], lse: f32[2,6,211]; heads=6, kv_heads=2 | "
     "dy: f32[2,150,24], qkv: f32[2,150,48], y: f32[2,150,24], lse: f32[2,2,150], rng: i32[4]; heads=2, kv_heads=1, dropout=0.2, stream=5 | "
     "dy: bf16[1,100,24], qkv: bf16[1,100,72], y: bf16[1,100,24], lse: f32[1,1,100]; heads=1, kv_heads=1"},
    {"embedding_grad",
     "ids: i32[4,100], dy: f32[4,100,33]; rows=131 | ids: i32[300], dy: bf16[300,5]; rows=70 | "
     "ids: i32[4,100], dy: f32[4,100,33], coordinate: i32[]; rows=131"},
    {"cross_entropy", "logits: f32[67,3001], targets: i32[67], count: f32[] | logits: bf16[5,1100], targets: i32[5], count: f32[]"},
    {"cross_entropy_grad",
     "dloss: f32[], logits: f32[67,3001], targets: i32[67], lse: f32[67], count: f32[] | "
     "dloss: f32[], logits: bf16[5,1100], targets: i32[5], lse: f32[5], count: f32[] | "
     "dloss: f32[], logits: f32[67,3001], targets: i32[67], lse: f32[67], count: f32[], coordinate: i32[]; classes=9000"},
    {"cross_entropy_stats",
     "logits: f32[67,3001], targets: i32[67], coordinate: i32[]; classes=9000, shards=1 | "
     "logits: bf16[5,1100], targets: i32[5], coordinate: i32[]; classes=1100, shards=1"},
    {"cross_entropy_combine", "stats: f32[3,2000,3], targets: i32[2000], count: f32[]"},
    {"square_sum", "g: f32[40000], g: f32[3,1025], g: bf16[20001]"},
    {"adamw", "w: f32[33,1029], g: f32[33,1029], m: f32[33,1029], v: f32[33,1029], lr: f32[], coefficient: f32[], count: i32[]; decay=0.1"},
    {"adamw_cast", "w: f32[33,1029], g: f32[33,1029], m: f32[33,1029], v: f32[33,1029], lr: f32[], coefficient: f32[], count: i32[], low: bf16[33,1029]; decay=0.1"},
    {"router", "logits: f32[2,300,130]; top_k=8 | logits: f32[1,77,264], bias: f32[264]; top_k=8, sigmoid=true, normalize=true, groups=8, keep_groups=4, scale=2.5"},
    {"route", "index: i32[4,300,6]; experts=64, slots=250, parts=8, sources=4"},
    {"dispatch", "x: bf16[4,33,1031], at: i32[4,33,3]; slots=120, parts=2, sources=2"},
    {"combine", "rows: bf16[2,2,120,1031], at: i32[4,33,3] | rows: f32[1,1,400,2051], at: i32[4,33,3]"},
    {"grouped_matmul",
     "rows: f32[2,2,150,400], offsets: i32[2,2,3], w: f32[4,400,500] | rows: f32[1,1,330,785], offsets: i32[1,1,3], w: f32[2,131,785]; tb=true | "
     "rows: bf16[3,1,250,33], offsets: i32[3,1,7], w: bf16[6,420,33]; tb=true | rows: f16[1,2,120,77], offsets: i32[1,2,34], w: f16[66,77,21] | "
     "rows: f32[1,1,40,610], offsets: i32[1,1,3], w: f32[2,610,3700] | rows: bf16[1,1,40,610], offsets: i32[1,1,3], w: bf16[2,3700,610]; tb=true"},
    {"grouped_matmul_grad_w",
     "a: f32[3,1,900,101], b: f32[3,1,900,391], offsets: i32[3,1,3] | a: bf16[5,2,60,200], b: bf16[5,2,60,97], offsets: i32[5,2,4]; out=\"f32\" | "
     "a: bf16[2,1,800,33], b: bf16[2,1,800,530], offsets: i32[2,1,4] | a: f16[9,1,40,17], b: f16[9,1,40,401], offsets: i32[9,1,3] | "
     "a: f32[1,1,700,5], b: f32[1,1,700,3700], offsets: i32[1,1,2] | a: f32[1,2,50,12], b: f32[1,2,50,31], offsets: i32[1,2,51]"},
    {"weighted_swiglu", "x: f32[2,2,9,2110], offsets: i32[2,2,3], w: f32[2,2,9] | x: bf16[1,1,5,2060], offsets: i32[1,1,4], w: f32[1,1,5]"},
    {"weighted_swiglu_grad",
     "dy: f32[2,2,9,1055], x: f32[2,2,9,2110], offsets: i32[2,2,3], w: f32[2,2,9] | dy: bf16[1,1,5,1030], x: bf16[1,1,5,2060], offsets: i32[1,1,4], w: f32[1,1,5]"},
    {"scale_rows", "x: f32[9,1055], w: f32[9,1] | x: bf16[5,2060], w: f32[5,1]"},
    {"scale_rows_grad", "dy: f32[9,1055], x: f32[9,1055], w: f32[9,1] | dy: bf16[5,2060], x: bf16[5,2060], w: f32[5,1]"},
};
// clang-format on

inline std::vector<Call> large_calls(const LargeCase& large) {
  return parse_samples(*find_op(large.op), large.samples);
}

}  // namespace weft
