// The compiler, in order: one line per pass and no conditions. A pass with nothing to do returns
// false and says why.
#include "passes/pass.h"

namespace weft {

namespace {

constexpr const Pass* kAllPasses[] = {
    &mixed_precision, &autodiff,  &loss_chunks, &optimizer, &simplify, &place,
    &shard_params,    &recompute, &bucket,      &overlap,   &fuse,
};

constexpr const Pass* kPipeline[] = {
    // The mathematics, on one device and whole shapes.
    &mixed_precision,  // before autodiff, so that gradients follow the compute type
    &autodiff,         // on the plain forward: later nodes need no gradient rules
    &loss_chunks,      // after autodiff, so that each piece's gradient follows its loss at once
    &optimizer,        // takes the gradients that autodiff returns
    &simplify,         // before place: dead or double values need no placement
    // Many ranks.
    &place,         // the whole step at once: gradients are partial sums by the same rules
    &shard_params,  // gathers and reduces what place found to be cut or partial
    &simplify,      // before recompute, which must not count values that are dead or double
    // Memory.
    &recompute,  // before fuse: what is kept is decided per op
    // Communication.
    &bucket,   // after recompute, which decides what is gathered twice
    &overlap,  // orders whole buckets
    // Speed.
    &fuse,  // last: no later pass has to look into a fused node
};

}  // namespace

std::span<const Pass* const> all_passes() {
  return kAllPasses;
}

const Pass* find_pass(std::string_view name) {
  for (const Pass* pass : kAllPasses) {
    if (pass->name == name) return pass;
  }
  return nullptr;
}

std::span<const Pass* const> pipeline() {
  return kPipeline;
}

}  // namespace weft
