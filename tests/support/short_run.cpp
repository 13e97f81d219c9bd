// Trains a tiny model for a few steps.
#include "support/short_run.h"

#include <stdexcept>
#include <thread>

#include "compile/config_choices.h"
#include "config/load.h"
#include "config/validate.h"
#include "data/loader.h"
#include "runtime/comm/threads.h"
#include "train/session.h"
#include "train/training_data.h"

namespace weft {

namespace {

// Turns a fifth of the tokens into end tokens, so that samples hold several documents.
void split_documents(int64_t seq_len, Batch& batch) {
  constexpr int32_t kEnd = 0;
  for (int32_t& token : batch.tokens) token = token % 5 == 0 ? kEnd : token;
  batch.positions = document_positions(batch.tokens, seq_len, kEnd);
}

ShortRun run_rank(const PreparedRun& prepared, Communicator& comm, int64_t steps) {
  const Config& config = prepared.config;
  Session session(config, prepared.compiled, comm);
  session.initialize(7);
  TokenSource source = TokenSource::synthetic(session.compiled().spec.vocab_size);
  int64_t batch_size = config.training.local_batch_size;
  int64_t seq_len = config.training.seq_len;
  ShortRun run;
  run.arena_bytes = session.executor().allocated_bytes();
  for (int64_t step = 0; step < steps; ++step) {
    StepResult result = session.train_step({.step = step, .seed = 11, .lr = 1e-3},
                                           [&](int64_t first_sample, Batch& batch) {
                                             fill_batch(source,
                                                        {.seed = 5,
                                                         .step = step,
                                                         .first_sample = first_sample,
                                                         .count = batch_size,
                                                         .seq_len = seq_len},
                                                        batch);
                                             if (config.training.document_mask)
                                               split_documents(seq_len, batch);
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

}  // namespace

PreparedRun prepare_run(int64_t ranks, const std::vector<std::string>& overrides) {
  Config config = parse_config("", "test", overrides);
  // A group of one accepts all settings of a larger one, though they do not affect results.
  if (config.parallelism.data_parallel_shard_degree != 1 || ranks > 1)
    validate(config, ranks, config_choices());
  if (ranks > 1) config.device.threads = 1;
  return {config, ranks, compile(config, {.data_vocab = 0, .ranks = ranks})};
}

ShortRun short_run(const std::vector<std::string>& overrides, int64_t steps) {
  return run_rank(prepare_run(1, overrides), single_rank(), steps);
}

void on_ranks(const PreparedRun& prepared, const std::function<void(Communicator&)>& work) {
  const Config& config = prepared.config;
  const int64_t ranks = prepared.ranks;
  const Mesh mesh = mesh_of(config, ranks);
  ThreadsJob job(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Communicator> comm = job.connect({mesh, rank}, comm_options(config));
      try {
        work(*comm);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
        comm->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) throw std::runtime_error(cat("rank ", rank, ": ", errors[rank]));
  }
}

ShortRun short_run_on_ranks(int64_t ranks, const std::vector<std::string>& overrides,
                            int64_t steps) {
  return short_run_on_ranks(prepare_run(ranks, overrides), steps);
}

ShortRun short_run_on_ranks(const PreparedRun& prepared, int64_t steps) {
  std::vector<ShortRun> runs(static_cast<size_t>(prepared.ranks));
  on_ranks(prepared, [&](Communicator& comm) {
    runs[static_cast<size_t>(comm.rank())] = run_rank(prepared, comm, steps);
  });
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    if (!(runs[rank] == runs[0])) {
      throw std::runtime_error(cat("rank ", rank, " differs from rank 0"));
    }
  }
  return runs[0];
}

}  // namespace weft
