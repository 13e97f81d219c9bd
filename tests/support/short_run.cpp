// Trains a tiny model for a few steps.
#include "support/short_run.h"

#include "config/load.h"
#include "config/validate.h"
#include "data/loader.h"
#include "train/session.h"

namespace weft {

ShortRun short_run(const std::vector<std::string>& overrides, int64_t steps) {
  Config config = parse_config("", "test", overrides);
  validate(config, 1);
  Session session(config, compile(config));
  session.initialize(7);
  TokenSource source = TokenSource::synthetic(session.compiled().spec.vocab_size);
  int64_t batch_size = config.training.local_batch_size;
  int64_t seq_len = config.training.seq_len;
  ShortRun run;
  run.arena_bytes = session.executor().allocated_bytes();
  for (int64_t step = 0; step < steps; ++step) {
    StepResult result = session.train_step(
        {.step = step, .seed = 11, .lr = 1e-3}, [&](int64_t first_sample, Batch& batch) {
          batch.tokens.resize(static_cast<size_t>(batch_size * seq_len));
          batch.targets.resize(batch.tokens.size());
          source.batch({.seed = 5,
                        .step = step,
                        .first_sample = first_sample,
                        .count = batch_size,
                        .seq_len = seq_len},
                       batch.tokens.data(), batch.targets.data());
        });
    run.losses.push_back(result.loss);
    run.grad_norms.push_back(result.grad_norm);
  }
  for (size_t i = 0; i < session.compiled().params.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(count(session.compiled().params[i].shape)));
    session.read_param(i, values);
    run.params.insert(run.params.end(), values.begin(), values.end());
  }
  return run;
}

}  // namespace weft
