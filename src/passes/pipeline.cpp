// The compiler, in order: one line per pass and no conditions. A pass with nothing to do returns
// false and says why.
#include "passes/pass.h"

namespace weft {

namespace {

constexpr const Pass* kAllPasses[] = {
    &mixed_precision, &autodiff,  &loss_chunks, &optimizer, &simplify, &place,
    &shard_params,    &recompute, &bucket,      &async_tp,  &overlap,  &fuse,
};

constexpr const Pass* kPipeline[] = {
    // The mathematics, for one device with full shapes.
    &mixed_precision,  // before autodiff, so that gradients follow the compute type
    &autodiff,         // on the plain forward: later nodes need no gradient rules
    &loss_chunks,      // after autodiff, so that each chunk's gradient directly follows its loss
    &optimizer,        // takes the gradients that autodiff returns
    &simplify,         // before place: dead or duplicate values need no placement
    // Distribution over ranks.
    &place,         // the full step at once: the same rules make gradients partial sums
    &shard_params,  // gathers and reduces what place found to be sharded or partial
    &simplify,      // before recompute, which must not count dead or duplicate values
    // Memory.
    &recompute,  // before fuse: what is kept is decided per op
    // Communication.
    &bucket,    // after recompute, which decides what is gathered twice
    &async_tp,  // after bucket, so that its prices are those of the plan
    &overlap,   // schedules complete buckets and the chunks of activations
    // Speed.
    &fuse,  // last, so that no pass has to look into a fused node
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
