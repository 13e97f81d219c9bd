// The keys that say how ranks and memory are used; the tables of all sections and keys.
#include "config/schema.h"

#include "config/schema_keys.h"

namespace weft {
namespace {

const Condition kTensorParallel{
    "parallelism.tensor_parallel_degree above 1",
    [](const Config& c, int64_t) { return c.parallelism.tensor_parallel_degree > 1; }};

const Condition kSharesTokens{
    "parallelism.tensor_parallel_degree above 1 and parallelism.sequence_parallel = true",
    [](const Config& c, int64_t) {
      return c.parallelism.tensor_parallel_degree > 1 && c.parallelism.sequence_parallel;
    }};
const Condition kAsyncTensorParallel{
    "parallelism.tensor_parallel_degree above 1, parallelism.sequence_parallel = true and "
    "parallelism.enable_async_tensor_parallel = true",
    [](const Config& c, int64_t ranks) {
      return kSharesTokens.holds(c, ranks) && c.parallelism.enable_async_tensor_parallel;
    }};
const Condition kExpertParallel{
    "parallelism.expert_parallel_degree above 1",
    [](const Config& c, int64_t) { return c.parallelism.expert_parallel_degree > 1; }};
const Condition kContextParallel{
    "parallelism.context_parallel_degree above 1",
    [](const Config& c, int64_t) { return c.parallelism.context_parallel_degree > 1; }};

bool has_mode(const Config& c, RecomputeMode mode) {
  return c.activation_checkpoint.mode == mode;
}

const Condition kBucketsBySize{
    "compile.bucketing = \"size\" or \"auto\" and more than one rank",
    [](const Config& c, int64_t r) {
      const BucketingMode mode = c.compile.bucketing;
      return r > 1 && (mode == BucketingMode::Size || mode == BucketingMode::Auto);
    }};
const Condition kBucketsByHand{"compile.bucketing = \"manual\" and more than one rank",
                               [](const Config& c, int64_t r) {
                                 return r > 1 && c.compile.bucketing == BucketingMode::Manual;
                               }};
const Condition kOverlaps{"compile.overlap = true and more than one rank",
                          [](const Config& c, int64_t r) { return r > 1 && c.compile.overlap; }};
const Condition kSelective{
    "activation_checkpoint.mode = \"selective\"",
    [](const Config& c, int64_t) { return has_mode(c, RecomputeMode::Selective); }};
const Condition kSelectiveByOp{
    "activation_checkpoint.mode = \"selective\" with selective_ac_option = \"op\"",
    [](const Config& c, int64_t) {
      return has_mode(c, RecomputeMode::Selective) &&
             c.activation_checkpoint.selective_ac_option == "op";
    }};
const Condition kBudget{
    "activation_checkpoint.mode = \"memory_budget\"",
    [](const Config& c, int64_t) { return has_mode(c, RecomputeMode::MemoryBudget); }};
const Condition kDumps{"compile.dump_folder",
                       [](const Config& c, int64_t) { return !c.compile.dump_folder.empty(); }};

void add_parallelism(Keys& keys) {
  using C = ParallelismConfig;
  SectionKeys s(keys, "parallelism", &Config::parallelism);
  s.add("data_parallel_replicate_degree", &C::data_parallel_replicate_degree,
        {.doc = "Number of rank groups that each hold a copy of the parameters.",
         .range = kPositive});
  s.add("data_parallel_shard_degree", &C::data_parallel_shard_degree,
        {.doc = "Number of ranks over which one copy of the parameters is sharded; -1 uses all "
                "remaining ranks.",
         .range = {.at_least = 1, .also = -1}});
  s.add("context_parallel_degree", &C::context_parallel_degree,
        {.doc = "Number of ranks that share the tokens of every sequence: each holds a chunk near "
                "the head and one near the tail, and needs the keys and values of the others.",
         .range = kPositive});
  s.add("context_parallel_method", &C::context_parallel_method,
        {.doc = "How ranks that share a sequence see each other's keys and values: gathered in "
                "full, or sent around a ring a block at a time, which takes less memory and "
                "overlaps with attention. auto takes what is predicted to be faster and fits.",
         .choices = {"allgather", "ring", "auto"},
         .effective_when = &kContextParallel});
  s.add("tensor_parallel_degree", &C::tensor_parallel_degree,
        {.doc = "Number of ranks that share the work of every layer: each holds a part of the "
                "attention heads, of the feed-forward and of the vocabulary.",
         .range = kPositive});
  s.add("expert_parallel_degree", &C::expert_parallel_degree,
        {.doc = "Number of ranks that share the experts of a layer: each holds some of them, and "
                "tokens are sent to the ranks of their experts. They are among the ranks of "
                "data_parallel_shard_degree, context_parallel_degree and tensor_parallel_degree.",
         .range = kPositive,
         .effective_when = &kManyRanks});
  s.add("expert_capacity_factor", &C::expert_capacity_factor,
        {.doc = "Limits the rows that a rank sends to another one to this many times an even load. "
                "A factor of expert_parallel_degree or more is no limit.",
         .range = {.above = 0},
         .unset = "2 on GPUs, no limit on CPUs, whose ranks send the rows that there are",
         .effective_when = &kExpertParallel});
  s.add("expert_overflow", &C::expert_overflow,
        {.doc = "What happens to rows beyond expert_capacity_factor. replay: the step is run again "
                "without a limit, so that none is lost. drop: their experts do not see them.",
         .choices = {"replay", "drop"},
         .effective_when = &kExpertParallel});
  s.add("sequence_parallel", &C::sequence_parallel,
        {.doc = "Whether the ranks of tensor parallelism also share the tokens between the "
                "matmuls, which saves memory for activations.",
         .effective_when = &kTensorParallel});
  s.add("disable_loss_parallel", &C::disable_loss_parallel,
        {.doc = "Whether every rank of tensor parallelism gathers the logits of the full "
                "vocabulary instead of computing the loss from its part.",
         .effective_when = &kTensorParallel});
  s.add("enable_async_tensor_parallel", &C::enable_async_tensor_parallel,
        {.doc = "Whether a matmul and the gather before it or the reduction after it may be "
                "computed in chunks of the tokens, so that the ranks send one chunk while they "
                "compute another.",
         .effective_when = &kSharesTokens});
  s.add("async_tensor_parallel_chunks", &C::async_tensor_parallel_chunks,
        {.doc = "Number of those chunks, for every matmul whose tokens it divides; -1 chooses it "
                "for each matmul, and chunks only where the cost model predicts a gain.",
         .range = {.at_least = 2, .also = -1},
         .effective_when = &kAsyncTensorParallel});
  s.add("fsdp_reshard_after_forward", &C::fsdp_reshard_after_forward,
        {.doc = "Whether gathered parameters are freed after the forward and gathered again in the "
                "backward.",
         .choices = {"default", "always", "never"},
         .effective_when = &kManyRanks});
  s.add("zero_stage", &C::zero_stage,
        {.doc = "1 shards only the optimizer state.",
         .range = {.at_least = 1, .at_most = 1},
         .unset = "follows from the other keys",
         .effective_when = &kManyRanks});
}

void add_activation_checkpoint(Keys& keys) {
  using C = ActivationCheckpointConfig;
  SectionKeys s(keys, "activation_checkpoint", &Config::activation_checkpoint);
  s.add("mode", &C::mode,
        {.doc = "Which forward values the backward recomputes instead of keeping: none, all within "
                "each block, some blocks or ops, or as many as the budget requires.",
         .choices = {"none", "full", "selective", "memory_budget"}});
  s.add("selective_ac_option", &C::selective_ac_option,
        {.doc = "\"2\" recomputes every 2nd block (any number from 1), \"from:K\" all blocks from "
                "block K on, \"op\" everything except the results of save_ops.",
         .effective_when = &kSelective});
  s.add("save_ops", &C::save_ops,
        {.doc = "Ops whose results are kept.", .effective_when = &kSelectiveByOp});
  s.add(
      "memory_budget", &C::memory_budget,
      {.doc = "Fraction of the activation memory to keep, from full recomputation (0) to none (1); "
              "values that save the most bytes per second of recomputation are recomputed first.",
       .range = kShare,
       .effective_when = &kBudget});
}

void add_compile(Keys& keys) {
  using C = CompileConfig;
  SectionKeys s(keys, "compile", &Config::compile);
  s.add("disable_passes", &C::disable_passes,
        {.doc = "Passes to skip; passes that others depend on cannot be skipped."});
  s.add("dump_folder", &C::dump_folder,
        {.doc = "Folder for dumps of the graph before and after passes; empty writes none."});
  s.add("dump_passes", &C::dump_passes,
        {.doc = "Passes to dump, or \"all\".", .effective_when = &kDumps});
  s.add("bucketing", &C::bucketing,
        {.doc = "Which parameters are gathered and reduced together: each one separately, those of "
                "a transformer block, at least bucket_min_parameters, as listed in `buckets`, or "
                "whatever the cost model finds fastest.",
         .choices = {"none", "transformer_block", "size", "manual", "auto"},
         .effective_when = &kManyRanks});
  s.add("bucket_min_parameters", &C::bucket_min_parameters,
        {.doc =
             "Minimum number of parameters per bucket; \"auto\" compares such buckets with others.",
         .range = kPositive,
         .effective_when = &kBucketsBySize});
  s.add("buckets", &C::buckets,
        {.doc = "Module paths such as \"layers.[0-5].attention\", \"layers.*\" or \"norm+output\": "
                "one bucket per match, + combines paths into one bucket, the first matching entry "
                "wins. Every parameter must match an entry.",
         .effective_when = &kBucketsByHand});
  s.add("overlap", &C::overlap,
        {.doc = "Whether collectives overlap with computation.", .effective_when = &kManyRanks});
  s.add("prefetch", &C::prefetch,
        {.doc = "Buckets gathered ahead of the one in use, fewer if memory is short; -1 uses the "
                "number that the cost model finds fastest. If a plan fits only without them, 0 is "
                "used, and the plan says so.",
         .range = {.at_least = 0, .at_most = 1000, .also = -1},
         .effective_when = &kOverlaps});
  s.add("overlap_with", &C::overlap_with,
        {.doc = "Entries \"bucket=module\": collectives of buckets with parameters of the first "
                "path overlap with the computation of the second.",
         .effective_when = &kOverlaps});
  s.add("shared_gather", &C::shared_gather,
        {.doc = "Whether the ranks of a host gather weights into one shared buffer instead of one "
                "copy per rank.",
         .effective_when = &kManyRanks});
}

void add_comm(Keys& keys) {
  using C = CommConfig;
  SectionKeys s(keys, "comm", &Config::comm);
  s.add("timeout_seconds", &C::timeout_seconds,
        {.doc = "Seconds without a heartbeat after which a rank that others wait for counts as "
                "hung and the job ends. A rank that is computing still sends heartbeats.",
         .range = {.above = 0},
         .effective_when = &kManyRanks});
  s.add("reduction", &C::reduction,
        {.doc = "Order of sums over GPU ranks: \"library\" leaves it to NCCL; \"ordered\" uses the "
                "same tree over ranks as the CPU, so that all bucketings and modes give the same "
                "bits, and needs memory for the data of the other ranks.",
         .choices = {"library", "ordered"},
         .effective_when = &kManyRanks});
  s.add("link_bandwidth", &C::link_bandwidth,
        {.doc = "Bytes per second of an artificially slow link between ranks, to see what overlap "
                "hides; 0 means no limit. Results do not depend on it.",
         .range = {.at_least = 1000, .also = 0},
         .effective_when = &kManyRanks});
  s.add("link_latency", &C::link_latency,
        {.doc = "Extra latency per collective on that link, in seconds.",
         .range = {.at_least = 0, .at_most = 60},
         .effective_when = &kManyRanks});
}
// The members of a set that list this key; empty: the key is not specific to some members.
std::vector<std::string> owners_of(const Key<Config>& key, const Choices& set) {
  std::vector<std::string> owners;
  for (const Choices::Member& member : set.members) {
    const auto& own = member.own_keys;
    if (std::find(own.begin(), own.end(), key.name) != own.end()) {
      owners.emplace_back(member.name);
    }
  }
  return owners;
}

Keys make_keys() {
  Keys keys;
  add_training_sections(keys);
  add_parallelism(keys);
  add_activation_checkpoint(keys);
  add_compile(keys);
  add_comm(keys);
  add_run_sections(keys);
  return keys;
}

}  // namespace

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections = {
      {"job", "The run itself."},
      {"model", "The model to train: a preset and changes to its sizes."},
      {"training", "Data, batch sizes and precision."},
      {"grad_scaler", "The loss scale that keeps float16 gradients in range."},
      {"optimizer", "The update rule."},
      {"lr_scheduler", "The learning rate over the steps."},
      {"parallelism", "How ranks divide the work."},
      {"activation_checkpoint", "Memory against time: what the backward recomputes."},
      {"compile", "The compiler's passes and their dumps."},
      {"comm", "Communication between ranks."},
      {"checkpoint", "What a run starts from and what it saves (docs/checkpoints.md)."},
      {"metrics", "Progress lines and the metrics file."},
      {"validation", "Loss on held-out tokens."},
      {"debug", "Reproducibility."},
      {"device", "The machine that runs the plan and the machine it is planned for."},
  };
  return sections;
}

bool is_config_section(std::string_view name) {
  const std::vector<Section>& sections = config_sections();
  return std::any_of(sections.begin(), sections.end(),
                     [&](const Section& section) { return section.name == name; });
}

const std::vector<Key<Config>>& config_keys() {
  static const Keys keys = make_keys();
  return keys;
}

const Key<Config>* find_config_key(std::string_view name) {
  return find_key(config_keys(), name);
}

bool has_effect(const Key<Config>& key, const Config& config, int64_t ranks,
                const ConfigChoices& sets) {
  for (const Choices& set : sets) {
    const std::vector<std::string> owners = owners_of(key, set);
    const ConfigValue chosen = find_config_key(set.key)->get(config);
    if (!owners.empty() &&
        std::find(owners.begin(), owners.end(), std::get<std::string>(chosen)) == owners.end()) {
      return false;
    }
  }
  const Condition* condition = key.options.effective_when;
  return condition == nullptr || condition->holds(config, ranks);
}

std::string needs_phrase(const Key<Config>& key, const ConfigChoices& sets) {
  std::vector<std::string> needs;
  if (key.options.effective_when != nullptr) {
    needs.emplace_back(key.options.effective_when->text);
  }
  for (const Choices& set : sets) {
    const std::vector<std::string> owners = owners_of(key, set);
    if (!owners.empty()) {
      needs.push_back(cat(set.key, " = ", choices_phrase(owners)));
    }
  }
  return join(needs, " and ");
}

}  // namespace weft
