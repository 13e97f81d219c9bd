// Shared by the tests of training on ranks: a model with every hard case, and the config of each
// mode.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"

namespace weft {

using Overrides = std::vector<std::string>;

inline Overrides with(Overrides overrides, const Overrides& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

// Dropout, a head tied to the embedding, biases smaller than a rank's shard.
inline const Overrides kTiny = {"--model.name=gpt2",
                                "--model.dim=16",
                                "--model.n_layers=3",
                                "--model.dropout=0.1",
                                "--training.local_batch_size=2",
                                "--training.seq_len=8"};

// "ddp", "zero1", "zero2", "fsdp" or "hsdp" on this many ranks; HSDP has two replicas. On one rank
// DDP has no group and the others have a group of one.
inline Overrides mode(const std::string& name, int64_t ranks) {
  const std::string shard = "--parallelism.data_parallel_shard_degree=";
  const std::string copies = "--parallelism.data_parallel_replicate_degree=";
  if (name == "ddp" && ranks == 1) return {};
  if (name == "ddp") return {cat(copies, ranks), shard + "1"};
  if (name == "hsdp") return {copies + "2", cat(shard, ranks / 2)};
  Overrides options = {cat(shard, ranks)};
  if (name == "zero1") options.push_back("--parallelism.zero_stage=1");
  if (name == "zero2") options.push_back("--parallelism.fsdp_reshard_after_forward=never");
  return options;
}

// The modes with the bits of DDP. An inner group whose size is not a power of two adds in a
// different order than all ranks do, so HSDP is excluded for some numbers of ranks.
inline std::vector<std::string> modes(int64_t ranks) {
  std::vector<std::string> names = {"zero1", "zero2", "fsdp"};
  if (ranks % 4 == 0) names.push_back("hsdp");
  return names;
}

}  // namespace weft
