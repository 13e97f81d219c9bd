// The list of ops. A new op is one definition and one line here.
#include "graph/ops/ops.h"

namespace weft {
namespace {

constexpr const OpDef* kOps[] = {
    &kInput,
    &kParam,
    &kState,
    &kBucket,
    &kAdd,
    &kCast,
    &kGelu,
    &kGeluGrad,
    &kDropout,
    &kShardRng,
    &kMatmul,
    &kAddBias,
    &kSumRows,
    &kSplitTime,
    &kConcatTime,
    &kAddInPlace,
    &kLayerNorm,
    &kLayerNormGrad,
    &kRmsNorm,
    &kRmsNormGrad,
    &kSwiglu,
    &kSwigluGrad,
    &kRope,
    &kAttention,
    &kAttentionGrad,
    &kDocumentAttention,
    &kDocumentAttentionGrad,
    &kQkNorm,
    &kQkNormGrad,
    &kRepeatKv,
    &kRepeatKvGrad,
    &kSplitQkv,
    &kConcatQkv,
    &kContextAttention,
    &kContextAttentionMore,
    &kContextAttentionGrad,
    &kEmbedding,
    &kEmbeddingGrad,
    &kAddPositions,
    &kAddPositionsGrad,
    &kCrossEntropy,
    &kCrossEntropyGrad,
    &kCrossEntropyStats,
    &kCrossEntropyCombine,
    &kAccumulate,
    &kSquareSum,
    &kNorm,
    &kClip,
    &kUpdateScale,
    &kAdamw,
    &kAdamwCast,
    &kMatmulAdd,
    &kMatmulAccumulate,
    &kEmbeddingGradAdd,
    &kLayerNormGradSums,
    &kAllGather,
    &kReduceScatter,
    &kAllReduce,
    &kAllToAll,
    &kShift,
    &kAllGatherStart,
    &kReduceScatterStart,
    &kAllReduceStart,
    &kAllToAllStart,
    &kShiftStart,
    &kWait,
    &kTakeShard,
    &kToPartial,
};

}  // namespace

std::span<const OpDef* const> all_ops() {
  return kOps;
}

}  // namespace weft
