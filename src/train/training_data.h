// The data of a run: token files, checked against each other, the model and the initial weights,
// and the micro-batches made from them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "config/config.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "train/session.h"

namespace weft {

// Opens the training files (none for synthetic data). All must use the same tokenizer, and that of
// the initial weights if those have one.
std::vector<WeightedFile> open_training_files(const Config& config);

// Weights that come with a tokenizer work only with data made by it. Throws UserError(InputFile).
void check_tokenizer_of_weights(const TokenFile& data, const std::string& path);

// The vocabulary size of the files' tokenizer; 0 if none of them records it.
int64_t data_vocabulary(const std::vector<WeightedFile>& files);

// The same for callers that need nothing else of the data. Opens it only if the model takes its
// vocabulary from it, else returns 0.
int64_t data_vocabulary(const Config& config);

// Creates the micro-batch of these samples of a source.
void fill_batch(const TokenSource& source, const BatchSpec& samples, Batch& batch);

class TrainingData {
 public:
  // The files of open_training_files, and the validation data if the config wants any, for a model
  // with this vocabulary.
  TrainingData(const Config& config, std::vector<WeightedFile> train, int64_t vocab_size);

  // Creates the micro-batch from `first_sample` of the step's global batch on.
  void fill(int64_t step, int64_t first_sample, Batch& batch) const;

  bool has_validation() const { return validation_.has_value(); }
  // The micro-batch from the `first`-th window of the validation data on. Windows wrap around, so
  // that a short file still fills all batches.
  Batch validation_batch(int64_t first) const;

  // Saved with the weights, if they are saved; read before the first step.
  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  void place_in_documents(Batch& batch) const;

  uint64_t seed_;
  int64_t batch_size_, seq_len_;
  std::optional<TokenSource> validation_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<int32_t> end_token_;  // if documents are masked
  TokenSource train_;
};

// Training micro-batches, created by a thread while the device works on the previous step. Each has
// two buffers that are swapped, so that a steady-state step neither allocates nor locks.
class BatchPrefetcher {
 public:
  // For steps from `first_step` on, whose micro-batches start at these samples; `data` outlives it.
  BatchPrefetcher(const TrainingData& data, std::vector<int64_t> first_samples,
                  int64_t first_step = 0);
  BatchPrefetcher(const BatchPrefetcher&) = delete;
  BatchPrefetcher& operator=(const BatchPrefetcher&) = delete;
  ~BatchPrefetcher();

  // Waits for all micro-batches of the next step; returns the error if one could not be created.
  std::exception_ptr failure();

  // The next micro-batch, in the order of steps and samples; the buffers in `batch` are reused.
  // Throws the error of a micro-batch that could not be created.
  void take(Batch& batch);

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr failure;
  };

  void work();

  const TrainingData& data_;
  std::vector<int64_t> first_samples_;
  int64_t first_step_;
  std::vector<Slot> slots_;  // one per micro-batch of a step
  // Counted over all steps since the first: the thread is ahead by at most the number of slots.
  std::atomic<int64_t> made_{0};
  std::atomic<int64_t> taken_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace weft
