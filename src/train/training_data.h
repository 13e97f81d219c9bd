// The data of a run: token files, checked against each other and against the model and the weights
// that read them, and the micro-batches made of them.
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

// Opens the training files, none for synthetic data; all come from one tokenizer, that of the
// initial weights where those name theirs.
std::vector<WeightedFile> open_training_files(const Config& config);

// How many ids the tokenizer of these files has; 0 where none of them names it.
int64_t data_vocabulary(const std::vector<WeightedFile>& files);

// The same for who needs no more of the data; opens it only where the model takes its vocabulary
// from there, else 0.
int64_t data_vocabulary(const Config& config);

// Makes the micro-batch of these samples of a source.
void fill_batch(const TokenSource& source, const BatchSpec& samples, Batch& batch);

class TrainingData {
 public:
  // The files of open_training_files, and the validation data if the config wants any, for a model
  // of this vocabulary.
  TrainingData(const Config& config, std::vector<WeightedFile> train, int64_t vocab_size);

  // Makes the micro-batch from `first_sample` of the step's global batch on.
  void fill(int64_t step, int64_t first_sample, Batch& batch) const;

  bool has_validation() const { return validation_.has_value(); }
  // The micro-batch from the `first`-th window of the validation data on. Windows wrap around, so
  // that a short file still fills the batches asked for.
  Batch validation_batch(int64_t first) const;

  // To be saved with the weights, if they are; read before the first step.
  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  void place_in_documents(Batch& batch) const;

  uint64_t seed_;
  int64_t batch_size_, seq_len_;
  std::optional<TokenSource> validation_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<int32_t> end_token_;  // where documents are kept apart
  TokenSource train_;
};

// Training micro-batches, made by a thread while the device works on those of the step before.
// There are two buffers for each, which change hands, so that a steady step allocates and locks
// nothing.
class BatchesAhead {
 public:
  // For steps from 0 on, whose micro-batches begin at these samples; `data` outlives it.
  BatchesAhead(const TrainingData& data, std::vector<int64_t> first_samples);
  BatchesAhead(const BatchesAhead&) = delete;
  BatchesAhead& operator=(const BatchesAhead&) = delete;
  ~BatchesAhead();

  // Waits for all micro-batches of the next step; the error of one that could not be made.
  std::exception_ptr failure();

  // The next micro-batch, in the order of steps and samples; what `batch` held is used again. An
  // error while it was made is thrown here.
  void take(Batch& batch);

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr failure;
  };

  void work();

  const TrainingData& data_;
  std::vector<int64_t> first_samples_;
  std::vector<Slot> slots_;  // one for each of the micro-batches of a step
  // Counted over all steps: the thread may be as far ahead as there are slots.
  std::atomic<int64_t> made_{0};
  std::atomic<int64_t> taken_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace weft
