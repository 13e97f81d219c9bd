// training.document_mask: a document packed with others trains as if it were alone.
#include <gtest/gtest.h>

#include "config/load.h"
#include "data/loader.h"
#include "train/session.h"

namespace weft {
namespace {

using Overrides = std::vector<std::string>;

const Overrides kGpt2 = {"--model.name=gpt2", "--model.dim=16", "--model.n_layers=2",
                         "--model.max_seq_len=576", "--model.dropout=0"};
const Overrides kLlama = {"--model.name=llama", "--model.flavor=debug", "--model.dim=16",
                          "--model.n_layers=2", "--model.n_heads=2",    "--model.n_kv_heads=1",
                          "--model.ffn_dim=32", "--model.vocab_size=64"};

const Overrides kDeepseek = {"--model.name=deepseek_v3", "--model.flavor=debug",
                             "--model.dim=16",           "--model.n_layers=2",
                             "--model.n_heads=2",        "--model.ffn_dim=32",
                             "--model.vocab_size=64",    "--model.expert_ffn_dim=16"};
// Documents of several chunks, on the CPU.
const Overrides kLlama4 = {
    "--model.name=llama4", "--model.flavor=debug",  "--model.dim=16",
    "--model.n_layers=4",  "--model.n_heads=2",     "--model.n_kv_heads=1",
    "--model.ffn_dim=32",  "--model.vocab_size=64", "--model.expert_ffn_dim=16"};

// Losses and parameters after some steps on the same documents, of `length` tokens each.
struct Outcome {
  std::vector<double> losses;
  std::vector<float> params;
  bool operator==(const Outcome&) const = default;
};

constexpr int32_t kEnd = 1;

// Distinct documents, each ending with the token kEnd.
Batch documents(int64_t count, int64_t length, int64_t seed) {
  Batch batch;
  for (int64_t i = 0; i < count * length; ++i) {
    const bool last = i % length == length - 1;
    batch.tokens.push_back(last ? kEnd : static_cast<int32_t>(2 + (i * i + 7 * i + seed) % 60));
  }
  batch.targets.assign(batch.tokens.begin() + 1, batch.tokens.end());
  batch.targets.push_back(2);
  return batch;
}

Outcome train(Overrides overrides, int64_t samples, int64_t seq_len, int64_t length) {
  overrides.push_back(cat("--training.local_batch_size=", samples));
  overrides.push_back(cat("--training.seq_len=", seq_len));
  const Config config = parse_config("", "test", overrides);
  Session session(config, compile(config));
  session.initialize(3);
  Outcome outcome;
  for (int64_t step = 0; step < 3; ++step) {
    const StepResult result =
        session.train_step({.step = step, .seed = 5, .lr = 1e-2}, [&](int64_t, Batch& batch) {
          batch = documents(samples * seq_len / length, length, step);
          if (config.training.document_mask) {
            batch.positions = document_positions(batch.tokens, seq_len, kEnd);
          }
        });
    outcome.losses.push_back(result.loss);
  }
  for (size_t i = 0; i < session.compiled().params.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(count(session.compiled().params[i].shape)));
    session.read_param(i, values);
    outcome.params.insert(outcome.params.end(), values.begin(), values.end());
  }
  return outcome;
}

// Six documents as six samples, and as two samples of three documents. All sums run over the same
// rows in the same order, in attention too: the reference takes one query after the other, the CPU
// blocks of 64 queries and of 96 keys, which the documents fill exactly here.
void expect_packed_as_alone(Overrides overrides, const std::string& backend, int64_t length) {
  overrides.push_back("--device.backend=" + backend);
  const Outcome alone = train(overrides, 6, length, length);
  EXPECT_NE(alone.losses.front(), alone.losses.back());
  EXPECT_NE(train(overrides, 2, 3 * length, length), alone) << "without a mask they mix";
  overrides.emplace_back("--training.document_mask=true");
  EXPECT_EQ(train(overrides, 2, 3 * length, length), alone);
  EXPECT_EQ(train(overrides, 6, length, length), alone);
}

TEST(Documents, TrainPackedAsAloneOnTheReference) {
  expect_packed_as_alone(kGpt2, "reference", 7);
  expect_packed_as_alone(kLlama, "reference", 7);
  expect_packed_as_alone(kDeepseek, "reference", 7);
  expect_packed_as_alone(kLlama4, "reference", 7);
}

TEST(Documents, TrainPackedAsAloneOnTheCpu) {
  expect_packed_as_alone(kGpt2, "cpu", 192);
  expect_packed_as_alone(kLlama, "cpu", 192);
  expect_packed_as_alone(kDeepseek, "cpu", 192);
  expect_packed_as_alone(kLlama4, "cpu", 192);
}

// Documents that begin inside a block of keys: the same sums in other groups, an ulp or two of f32
// in every loss.
TEST(Documents, TrainPackedNearlyAsAloneWhereverTheyBegin) {
  for (Overrides overrides : {kGpt2, kLlama, kDeepseek, kLlama4}) {
    const Outcome alone = train(overrides, 6, 71, 71);
    overrides.emplace_back("--training.document_mask=true");
    const Outcome packed = train(overrides, 2, 213, 71);
    for (size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_NEAR(packed.losses[i] / alone.losses[i], 1, 1e-6);
    }
  }
}

}  // namespace
}  // namespace weft
