// Weights that the update keeps in the compute type (training.keep_low_precision), on ranks that
// are threads: losses, norms and parameters have the bits of casting for every use, whatever is
// sharded, however collectives are merged, and whichever weights training continues from.
#include <gtest/gtest.h>

#include <set>

#include "plan/comm_volume.h"
#include "ranks/modes.h"
#include "support/short_run.h"
#include "train/session.h"

namespace weft {
namespace {

const Overrides kKeep = {"--training.keep_low_precision=true"};
const Overrides kBf16 = {"--training.mixed_precision_param=bfloat16"};
const Overrides kF16 = {"--training.mixed_precision_param=float16"};

// Pairwise coverage of precision, micro-batches, bucketing, overlap and recomputation.
std::vector<Overrides> choices(int64_t ranks) {
  const Overrides several = {cat("--training.global_batch_size=", 4 * ranks)};
  const Overrides plain = {"--compile.bucketing=none", "--compile.overlap=false"};
  const Overrides sized = {"--compile.bucketing=size", "--compile.bucket_min_parameters=3000",
                           "--training.mixed_precision_reduce=bfloat16"};
  const Overrides full = {"--activation_checkpoint.mode=full"};
  return {kBf16, with(with(kBf16, several), with(plain, full)), with(with(kBf16, several), sized),
          with(with(kF16, several), {"--compile.bucketing=auto"}),
          with(with(kF16, plain), {"--activation_checkpoint.mode=memory_budget"})};
}

// Ops of a training step that read master weights.
std::set<std::string> readers_of_masters(const Plan& plan) {
  std::set<std::string> ops;
  for (const ProgramKind program : {ProgramKind::Micro, ProgramKind::Last}) {
    for (const Step& step : plan.program(program)) {
      for (const TensorRef& operand : step.operands) {
        const Buffer& buffer = plan.buffers.at(static_cast<size_t>(operand.buffer));
        if (buffer.kind == BufferKind::Param) ops.insert(step.op);
      }
    }
  }
  return ops;
}

class KeptCopies : public testing::TestWithParam<int64_t> {};

TEST_P(KeptCopies, HaveTheBitsOfCastingInEveryMode) {
  const int64_t ranks = GetParam();
  std::vector<std::string> names = modes(ranks);
  names.emplace_back("ddp");
  for (const std::string& name : names) {
    for (const Overrides& choice : choices(ranks)) {
      const Overrides options = with(with(kTiny, choice), mode(name, ranks));
      SCOPED_TRACE(cat(name, " ", join(choice, " ")));
      const PreparedRun kept = prepare_run(ranks, with(options, kKeep));
      EXPECT_EQ(packing_bytes(kept.compiled.plan, ProgramKind::Last), 0);
      EXPECT_EQ(readers_of_masters(kept.compiled.plan), std::set<std::string>{"adamw_cast"});
      EXPECT_TRUE(short_run_on_ranks(kept) == short_run_on_ranks(ranks, options));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KeptCopies, testing::Values(2, 3, 4),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

TEST(KeptCopies, OfAGroupOfOne) {
  const ShortRun alone = short_run(with(kTiny, kBf16));
  for (const char* name : {"zero1", "zero2", "fsdp"}) {
    const Overrides options = with(with(kTiny, kBf16), mode(name, 1));
    EXPECT_TRUE(short_run_on_ranks(1, with(options, kKeep)) == alone) << name;
  }
}

// A plan's bytes equal the allocated bytes, and the copies take half the bytes of this rank's
// parameters.
TEST(KeptCopies, AreHalfOfTheParametersInMemory) {
  for (const char* name : {"ddp", "zero1", "fsdp"}) {
    const Overrides options = with(with(with(kTiny, kBf16), kKeep), mode(name, 2));
    const PreparedRun kept = prepare_run(2, options);
    int64_t params = 0;
    int64_t copies = 0;
    for (const Buffer& buffer : kept.compiled.plan.buffers) {
      if (buffer.kind == BufferKind::Param) params += buffer.bytes;
      if (buffer.kind == BufferKind::Copy) copies += buffer.bytes;
    }
    EXPECT_GT(copies, 0) << name;
    EXPECT_EQ(2 * copies, params) << name;
    EXPECT_EQ(short_run_on_ranks(kept, 1).arena_bytes, kept.compiled.plan.arena_bytes) << name;
  }
}

struct Continued {
  std::vector<double> losses;  // of two steps, and of an evaluation after them
  std::vector<float> params;
  bool operator==(const Continued&) const = default;
};

// Continues training from full weights, stored one after the other.
Continued go_on(int64_t ranks, const Overrides& overrides, const std::vector<float>& from) {
  const PreparedRun prepared = prepare_run(ranks, overrides);
  const auto batch_size = static_cast<size_t>(prepared.config.training.local_batch_size);
  const auto fill = [&](int64_t sample, Batch& batch) {
    batch.tokens.resize(batch_size * 8);
    batch.targets.resize(batch.tokens.size());
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.tokens[i] = static_cast<int32_t>((sample * 31 + static_cast<int64_t>(i) * 7) % 200);
      batch.targets[i] = batch.tokens[i] + 1;
    }
  };
  Continued continued;
  on_ranks(prepared, [&](Communicator& comm) {
    Session session(prepared.config, prepared.compiled, comm);
    session.initialize(1);
    Continued own;
    std::span<const float> rest = from;
    for (size_t i = 0; i < session.compiled().params.size(); ++i) {
      const auto size = static_cast<size_t>(count(session.compiled().params[i].shape));
      session.write_param(i, rest.first(size));
      rest = rest.subspan(size);
    }
    for (int64_t step = 0; step < 2; ++step) {
      own.losses.push_back(session.train_step({.step = step, .seed = 3, .lr = 1e-3}, fill).loss);
    }
    Batch batch;
    fill(comm.rank(), batch);
    own.losses.push_back(session.evaluate({&batch, 1}));
    for (size_t i = 0; i < session.compiled().params.size(); ++i) {
      std::vector<float> values(static_cast<size_t>(count(session.compiled().params[i].shape)));
      session.read_param(i, values);
      own.params.insert(own.params.end(), values.begin(), values.end());
    }
    if (comm.rank() == 0) continued = own;
  });
  return continued;
}

// Weights saved by another run replace the initial ones, including the copies.
TEST(KeptCopies, FollowTheWeightsThatARunStartsFrom) {
  const std::vector<float> saved = short_run(with(kTiny, kBf16), 2).params;
  const Overrides evaluated = with(with(kTiny, kBf16), {"--validation.enable=true"});
  for (const int64_t ranks : {1, 2, 4}) {
    for (const char* name : {"ddp", "zero1", "fsdp"}) {
      if (ranks == 1 && std::string(name) == "ddp") continue;
      const Overrides options = with(evaluated, mode(name, ranks));
      SCOPED_TRACE(cat(name, " on ", ranks));
      EXPECT_TRUE(go_on(ranks, with(options, kKeep), saved) == go_on(ranks, options, saved));
    }
  }
}

// In elastic runs the number of ranks may change between runs.
TEST(KeptCopies, ContinueOnAnotherNumberOfRanksWithTheSameBits) {
  const Overrides elastic =
      with(with(kTiny, kBf16), {"--debug.deterministic=elastic", "--debug.elastic_shards=4"});
  const std::vector<float> saved = short_run_on_ranks(2, with(elastic, kKeep), 2).params;
  EXPECT_EQ(saved, short_run(elastic, 2).params);
  const Overrides evaluated = with(elastic, {"--validation.enable=true"});
  const Continued cast = go_on(1, with(evaluated, mode("fsdp", 1)), saved);
  for (const int64_t ranks : {1, 2, 4}) {
    const Continued kept = go_on(ranks, with(with(evaluated, kKeep), mode("fsdp", ranks)), saved);
    EXPECT_EQ(kept.params, cast.params) << ranks;
    EXPECT_EQ(std::vector(kept.losses.begin(), kept.losses.begin() + 2),
              std::vector(cast.losses.begin(), cast.losses.begin() + 2))
        << ranks;
  }
}

}  // namespace
}  // namespace weft
