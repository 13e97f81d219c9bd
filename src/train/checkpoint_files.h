// The files of a run's checkpoints: which tensors they hold under which names, where these lie, and
// which bytes this rank writes. "model" holds the weights under their Hugging Face names,
// "optimizer" the moments as "m.NAME" and "v.NAME", the states of the step and, if the weights are
// exported in another type, the f32 weights as "master.NAME".
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/block_writer.h"
#include "checkpoint/tensor_layout.h"
#include "compile/compile.h"
#include "config/config.h"
#include "train/model_texts.h"
#include "train/param_store.h"

namespace weft {

inline constexpr std::string_view kMasterPrefix = "master.";
inline constexpr const char* kModelStem = "model";
inline constexpr const char* kOptimizerStem = "optimizer";

// States of the entire step, which every rank holds.
inline constexpr StateRole kStepStates[] = {StateRole::UpdateCount, StateRole::LossScale,
                                            StateRole::GoodSteps};

// Bytes of a file that this rank writes: elements of a tensor of the plan, a text, or zeros.
struct SavedRange {
  FileRange range;
  const Binding* from = nullptr;  // null: a text or zeros
  int64_t at = 0;                 // first element in the rank's tensor
  DType dtype = DType::F32;       // in the file
  std::string_view weight = {};   // the parameter, if these are weights: they must be finite
  std::string_view text = {};     // empty: zeros

  int64_t elements() const { return range.bytes / dtype_bytes(dtype); }
  // Bytes of the elements as the plan stores them.
  int64_t stored_bytes() const;
};

class CheckpointFiles {
 public:
  CheckpointFiles(const Compiled& compiled, const ParamStore& store, const CheckpointConfig& config,
                  int64_t rank);

  // Files of tensors with their sizes, the same on every rank.
  std::span<const PlannedFile> files() const { return files_; }
  // The indexes of files that hold the tensors of one stem, if there are several.
  const std::vector<TextFile>& indexes() const { return indexes_; }
  // What this rank writes, in file order.
  std::span<const SavedRange> ranges() const { return ranges_; }
  int64_t bytes() const;

 private:
  struct Tensor;
  std::vector<Tensor> weights(const CheckpointConfig& config) const;
  std::vector<Tensor> states(const CheckpointConfig& config) const;
  void add_params(std::vector<Tensor>& tensors, std::string_view prefix, DType dtype,
                  StateRole role) const;
  void place(const std::string& stem, const std::vector<Tensor>& tensors, int64_t max_file_bytes);
  void add_ranges(const Tensor& tensor, size_t file, int64_t offset);

  const Compiled& compiled_;
  const ParamStore& store_;
  bool first_rank_;
  std::deque<std::string> headers_;  // their addresses stay: ranges refer to them
  std::vector<PlannedFile> files_;
  std::vector<TextFile> indexes_;
  std::vector<SavedRange> ranges_;
};

}  // namespace weft
