// The data of a run: token files, checked against each other and against the model and the weights
// that read them, and the micro-batches made of them.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <vector>

#include "config/config.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "train/session.h"

namespace weft {

// How many ids the config's data has, where the model takes its vocabulary from there; else 0.
int64_t data_vocabulary(const Config& config);

// Opens the training files, none for synthetic data; all come from one tokenizer, that of the
// initial weights where those name theirs.
std::vector<WeightedFile> open_training_files(const Config& config);

class TrainingData {
 public:
  // The files of open_training_files, and the validation data if the config wants any, for a model
  // of this vocabulary.
  TrainingData(const Config& config, std::vector<WeightedFile> train, int64_t vocab_size);

  // The micro-batch from `first_sample` of the step's global batch on.
  Batch batch(int64_t step, int64_t first_sample) const;

  bool has_validation() const { return validation_.has_value(); }
  // The micro-batch from the `first`-th window of the validation data on. Windows wrap around, so
  // that a short file still fills the batches asked for.
  Batch validation_batch(int64_t first) const;

  // To be saved with the weights, if they are; read before the first step.
  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  Batch empty_batch() const;
  void place_in_documents(Batch& batch) const;

  uint64_t seed_;
  int64_t batch_size_, seq_len_;
  std::optional<TokenSource> validation_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<int32_t> end_token_;  // where documents are kept apart
  TokenSource train_;
};

// Training micro-batches, each made while the device works on the one that stands in its place a
// step before.
class BatchesAhead {
 public:
  // `data` outlives it.
  explicit BatchesAhead(const TrainingData& data) : data_(data) {}

  Batch take(int64_t step, int64_t first_sample);

 private:
  struct Slot {
    int64_t step = -1;
    std::future<Batch> batch;
  };

  const TrainingData& data_;
  std::map<int64_t, Slot> slots_;  // by first sample
};

}  // namespace weft
