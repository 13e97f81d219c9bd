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
    &kFused,
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
    &kSplitQkv,
    &kConcatQkv,
    &kContextAttention,
    &kContextAttentionGrad,
    &kEmbedding,
    &kEmbeddingGrad,
    &kAddPositions,
    &kAddPositionsGrad,
    &kCrossEntropy,
    &kCrossEntropyGrad,
    &kCrossEntropyBoth,
    &kCrossEntropyStats,
    &kCrossEntropyCombine,
    &kAccumulate,
    &kSquareSum,
    &kNorm,
    &kClip,
    &kUpdateScale,
    &kAdamw,
    &kAdamwCast,
    &kGeluGradSum,
    &kMatmulAdd,
    &kMatmulAccumulate,
    &kEmbeddingGradAdd,
    &kAddLayerNorm,
    &kAddRmsNorm,
    &kLayerNormGradSums,
    &kRmsNormGradAdd,
    &kAllGather,
    &kReduceScatter,
    &kAllReduce,
    &kAllGatherStart,
    &kReduceScatterStart,
    &kAllReduceStart,
    &kWait,
    &kTakeShard,
    &kToPartial,
};

}  // namespace

std::span<const OpDef* const> all_ops() {
  return kOps;
}

}  // namespace weft
