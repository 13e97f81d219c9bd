// Declarations of every op definition, grouped by the file that defines them.
#pragma once

#include "graph/op.h"

namespace weft {

// ops/source.cpp: values bound from outside.
extern const OpDef kInput, kParam, kState, kBucket;

// ops/elementwise.cpp
extern const OpDef kAdd, kCast, kGelu, kGeluGrad, kDropout, kShardRng;

// ops/matmul.cpp
extern const OpDef kMatmul, kAddBias, kSumRows;

// ops/slices.cpp: chunks of a batch along time, columns.
extern const OpDef kSplitTime, kConcatTime, kSplitColumns, kConcatColumns, kAddInPlace;

// ops/nn.cpp: norms, feed-forward gates.
extern const OpDef kLayerNorm, kLayerNormGrad, kRmsNorm, kRmsNormGrad, kSwiglu, kSwigluGrad;

// ops/attention.cpp, and files with the names of these: queries, keys and values.
extern const OpDef kRope, kScaleQueries, kAttention, kAttentionGrad, kDocumentAttention,
    kDocumentAttentionGrad, kQkNorm, kQkNormGrad, kQkUnitNorm, kQkUnitNormGrad, kLatentQkv,
    kLatentQkvGrad, kRepeatKv, kRepeatKvGrad, kSplitQkv, kConcatQkv, kContextAttention,
    kContextAttentionMore, kContextAttentionGrad;

// ops/router.cpp: the experts of every token.
extern const OpDef kRouter, kRouterGrad, kRoute, kExpertCounts, kLostRows, kGuardNorm,
    kBalanceRouter;

// ops/router_loss.cpp: losses that keep the load of experts even and the logits of routers small.
extern const OpDef kRouterLoss, kRouterLossGrad;

// ops/experts.cpp: rows of tokens for experts, and what experts compute.
extern const OpDef kDispatch, kCombine, kDispatchWeights, kCombineWeights, kGroupedMatmul,
    kGroupedMatmulGradW, kWeightedSwiglu, kWeightedSwigluGrad, kScaleRows, kScaleRowsGrad;

// ops/fused.cpp: ops that `fuse` creates from neighbours.
extern const OpDef kMatmulAdd, kMatmulAccumulate, kEmbeddingGradAdd, kLayerNormGradSums;

// ops/training.cpp: embedding, loss, gradient norm, update.
extern const OpDef kEmbedding, kEmbeddingGrad, kAddPositions, kAddPositionsGrad, kCrossEntropy,
    kCrossEntropyGrad, kAccumulate, kSquareSum, kNorm, kClip, kUpdateScale, kAdamw, kAdamwCast;

// ops/vocabulary.cpp: the loss on shards of the vocabulary.
extern const OpDef kCrossEntropyStats, kCrossEntropyCombine;

// ops/collective.cpp
extern const OpDef kAllGather, kReduceScatter, kAllReduce, kAllToAll, kShift, kAllGatherStart,
    kReduceScatterStart, kAllReduceStart, kAllToAllStart, kShiftStart, kWait, kTakeShard,
    kToPartial;

}  // namespace weft
