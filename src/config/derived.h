// Values derived from a config and the degrees of its mesh, as functions: a config never changes
// after loading. All of them expect a config that validate() accepted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace weft {

// The sizes of the mesh axes, outermost first; their product is the number of ranks. Only the
// data-parallel ones divide the batch: the ranks along the others work on the same samples. The
// expert degree is no factor of the ranks: it numbers those of dp_shard, cp and tp a second time.
struct Degrees {
  int64_t dp_replicate = 1;
  int64_t dp_shard = 1;
  int64_t cp = 1;
  int64_t tp = 1;
  int64_t ep = 1;

  int64_t ranks() const { return dp_replicate * dp_shard * cp * tp; }
  // Ranks with copies of the same experts, within one copy of the other parameters.
  int64_t edp() const { return dp_shard * cp * tp / ep; }
  int64_t batch_ranks() const { return dp_replicate * dp_shard; }
  // Which part of the batch a rank works on.
  int64_t batch_rank(int64_t rank) const { return rank / (cp * tp); }
};

// Which blocks or ops mode = "selective" recomputes.
struct SelectiveOption {
  enum class Kind { EveryKth, FromBlock, ByOp };
  Kind kind = Kind::EveryKth;
  int64_t block = 2;  // EveryKth: k (recomputes blocks 0, k, 2k ...); FromBlock: the first block
};

// The degrees of a job with this many ranks; a shard degree of -1 is replaced by the ranks left.
Degrees degrees_of(const Config& config, int64_t ranks);

// Tokens of a sequence in the plan: training.seq_len, with cp rounded up so that the ranks that
// share a sequence have equal parts of it.
int64_t planned_seq_len(const Config& config, const Degrees& degrees);

// How many rows a rank may send to the experts of another, relative to an even load; 0: no limit.
double expert_capacity(const Config& config, const Degrees& degrees);

// How many of them a rank has between the matmuls.
int64_t tokens_per_rank(const Config& config, const Degrees& degrees);

// Whether the bits are independent of the number of ranks: debug.deterministic = "elastic".
bool is_elastic(const Config& config);

// Whether sums over ranks have a fixed order on every transport.
bool orders_sums(const Config& config);

// Sequences in one optimizer step over all ranks.
int64_t global_batch_size(const Config& config, const Degrees& degrees);

// Micro-batches that each rank accumulates in one optimizer step.
int64_t accumulation_steps(const Config& config, const Degrees& degrees);

// Whether each rank sums its micro-batches and the ranks reduce once per step.
bool reduces_once(const Config& config, const Degrees& degrees);

// One of the micro-batches that a rank accumulates.
struct RankSlot {
  int64_t rank = 0;
  int64_t slot = 0;
};

// The index, within the step and over all ranks, of the micro-batch in a rank's slot. Sums over
// slots and over ranks are trees. In an elastic run these indices make them parts of one tree over
// all micro-batches; what is summed first is in the low bits.
int64_t global_micro_batch(const Config& config, const Degrees& degrees, const RankSlot& at);

// Micro-batches that each rank evaluates in one validation step.
int64_t validation_slots(const Config& config, const Degrees& degrees);

// Whether the loss is scaled to keep gradients in the range of the compute type.
bool scales_loss(const Config& config);

// A token file to train on and its weight.
struct TrainingFile {
  std::string path;
  double weight = 1;
};

// The token files of training.dataset_path or training.dataset_mix; none for synthetic data.
std::vector<TrainingFile> training_files(const Config& config);

// Reads activation_checkpoint.selective_ac_option: "2", "op" or "from:K".
SelectiveOption selective_option(const Config& config);

// How a message refers to a key: where the user set it and its value, or its default. Examples:
// "a.toml:3: model.n_heads = 5", "training.seq_len = 64".
std::string describe_key(const Config& config, std::string_view key);

}  // namespace weft
