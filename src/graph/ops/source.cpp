// Values bound from outside the program. Their types are given, not inferred, and they have a text
// form of their own: %x = input "x" [batch, sequence] : type. The names of dims may be absent.
#include "graph/ops/ops.h"

namespace weft {

constinit const OpDef kInput{
    .signature = "input(; name: text, dims = [texts]) -> x",
    .doc =
        "A tensor the caller writes before every run: tokens, targets, step scalars. `dims` names "
        "its dims.",
    .traits = {.source = true, .differentiable = false},
};

constinit const OpDef kParam{
    .signature = "param(; name: text, dims = [texts]) -> w",
    .doc =
        "A trained parameter; it persists between runs and receives a gradient. `dims` names its "
        "dims, from which its placement follows.",
    .traits = {.source = true, .differentiable = false},
};

constinit const OpDef kState{
    .signature = "state(; key: state) -> s",
    .doc =
        "A tensor that persists between runs without being trained: moments, counters, "
        "accumulated gradients. Its name says whose it is and in which role.",
    .traits = {.source = true, .differentiable = false},
};

constinit const OpDef kBucket{
    .signature = "bucket(; members: texts) -> w",
    .doc =
        "Flat storage of the named parameters, trained like them: each member starts at a multiple "
        "of 1024 elements, the padding is zero, and F(axis) shards the storage evenly over the "
        "axis.",
    .traits = {.source = true, .differentiable = false},
};

}  // namespace weft
