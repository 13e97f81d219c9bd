#include "config/schema.h"

#include "base/loss_scale.h"
#include "base/parallel.h"
#include "config/derived.h"

namespace weft {
namespace {

using Keys = std::vector<Key<Config>>;

const Range kPositive{.at_least = 1};
const Range kNotNegative{.at_least = 0};
const Range kShare{.at_least = 0, .at_most = 1};

bool has_mode(const Config& c, RecomputeMode mode) {
  return c.activation_checkpoint.mode == mode;
}

const Condition kReadsFile{"training.dataset = \"file\"", [](const Config& c, int64_t) {
                             return c.training.dataset == Dataset::File;
                           }};
const Condition kSkips{"training.nonfinite = \"skip\"", [](const Config& c, int64_t) {
                         return c.training.nonfinite == NonFinitePolicy::Skip;
                       }};
const Condition kScales{"training.mixed_precision_param = \"float16\"",
                        [](const Config& c, int64_t) { return scales_loss(c); }};
const Condition kRoundsParams{"training.mixed_precision_param other than \"float32\"",
                              [](const Config& c, int64_t) {
                                return c.training.mixed_precision_param != Precision::Float32;
                              }};
const Condition kDecays{
    "lr_scheduler.decay_type other than \"constant\"",
    [](const Config& c, int64_t) { return c.lr_scheduler.decay_type != DecayType::Constant; }};
const Condition kManyRanks{"more than one rank", [](const Config&, int64_t r) { return r > 1; }};
const Condition kReducesOften{
    "more than one rank, several micro-batches per step and no parallelism.zero_stage",
    [](const Config& c, int64_t r) {
      return r > 1 && accumulation_steps(c, r) > 1 && !c.parallelism.zero_stage;
    }};
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
const Condition kSaves{"checkpoint.enable = true",
                       [](const Config& c, int64_t) { return c.checkpoint.enable; }};
const Condition kValidates{"validation.enable = true",
                           [](const Config& c, int64_t) { return c.validation.enable; }};
const Condition kValidatesFile{"validation.enable = true and training.dataset = \"file\"",
                               [](const Config& c, int64_t) {
                                 return c.validation.enable && c.training.dataset == Dataset::File;
                               }};
const Condition kElastic{"debug.deterministic = \"elastic\"",
                         [](const Config& c, int64_t) { return is_elastic(c); }};
const Condition kOverlapsSteps{"device.step_by_step = false",
                               [](const Config& c, int64_t) { return !c.device.step_by_step; }};
const Condition kMultipliesF32{"training.mixed_precision_param = \"float32\"",
                               [](const Config& c, int64_t) {
                                 return c.training.mixed_precision_param == Precision::Float32;
                               }};

// Adds keys of one section.
template <class Part>
class SectionKeys {
 public:
  SectionKeys(Keys& keys, std::string section, Part Config::*part)
      : keys_(keys), section_(std::move(section)), part_(part) {}

  template <class Member>
  void add(const std::string& name, Member Part::*member, const KeyOptions& options) {
    keys_.push_back(make_key(section_ + "." + name, part_, member, options));
  }

 private:
  Keys& keys_;
  std::string section_;
  Part Config::*part_;
};

void add_job(Keys& keys) {
  using C = JobConfig;
  SectionKeys s(keys, "job", &Config::job);
  s.add("description", &C::description, {.doc = "A free-form description of the run."});
  s.add("dump_folder", &C::dump_folder,
        {.doc = "Output folder of the run: its config, its plan, and checkpoint.folder and "
                "metrics.file unless these are absolute paths."});
}

void add_model(Keys& keys) {
  using C = ModelConfig;
  SectionKeys s(keys, "model", &Config::model);
  const std::string preset = "the preset's";
  s.add("name", &C::name, {.doc = "Model family."});
  s.add("flavor", &C::flavor,
        {.doc = "Provides every size not set here: a preset of the family, or a Hugging Face "
                "folder with a config.json (written with a slash, such as ./gpt2)."});
  s.add("vocab_size", &C::vocab_size,
        {.doc = "Number of token ids; -1 uses the vocabulary of the training data's tokenizer.",
         .range = {.at_least = 1, .also = kVocabularyOfData},
         .unset = preset});
  s.add("dim", &C::dim,
        {.doc = "Width of the residual stream.", .range = kPositive, .unset = preset});
  s.add("n_layers", &C::n_layers,
        {.doc = "Number of transformer blocks.", .range = kPositive, .unset = preset});
  s.add("n_heads", &C::n_heads,
        {.doc = "Number of query heads.", .range = kPositive, .unset = preset});
  s.add("n_kv_heads", &C::n_kv_heads,
        {.doc = "Number of key and value heads; divides n_heads.",
         .range = kPositive,
         .unset = preset});
  s.add("ffn_dim", &C::ffn_dim,
        {.doc = "Width of the feed-forward layer.", .range = kPositive, .unset = preset});
  s.add("max_seq_len", &C::max_seq_len,
        {.doc = "Longest sequence that the model supports.", .range = kPositive, .unset = preset});
  s.add("norm_eps", &C::norm_eps,
        {.doc = "Added to the variance inside a norm.", .range = {.above = 0}, .unset = preset});
  s.add("dropout", &C::dropout,
        {.doc = "Dropout probability during training.",
         .range = {.at_least = 0, .below = 1},
         .unset = preset});
  s.add("bias", &C::bias, {.doc = "Whether linear layers and norms have a bias.", .unset = preset});
  s.add("tie_embeddings", &C::tie_embeddings,
        {.doc = "Whether the output head uses the token embedding's weight.", .unset = preset});
  s.add("rope_theta", &C::rope_theta,
        {.doc = "Base of the rotary embedding's wavelengths.",
         .range = {.above = 0},
         .unset = preset});
  s.add("rope_scaling", &C::rope_scaling,
        {.doc = "How the rotary embedding's long wavelengths are scaled.",
         .choices = {"none", "llama3"},
         .unset = preset});
}

void add_training(Keys& keys) {
  using C = TrainingConfig;
  SectionKeys s(keys, "training", &Config::training);
  s.add("dataset", &C::dataset,
        {.doc = "Where tokens come from: synthetic, or read from a token file.",
         .choices = {"synthetic", "file"}});
  s.add("dataset_path", &C::dataset_path,
        {.doc = "Token file to train on.", .effective_when = &kReadsFile});
  s.add("dataset_mix", &C::dataset_mix,
        {.doc = "Several token files instead of one, as \"path=weight\": samples are drawn from "
                "them in proportion to the weights.",
         .effective_when = &kReadsFile});
  s.add("document_mask", &C::document_mask,
        {.doc = "Whether attention and positions are limited to single documents, as if documents "
                "were not packed into sequences. Documents end with the token file's end token.",
         .effective_when = &kReadsFile});
  s.add("local_batch_size", &C::local_batch_size,
        {.doc = "Sequences per micro-batch and rank.", .range = kPositive});
  s.add("global_batch_size", &C::global_batch_size,
        {.doc = "Sequences per optimizer step over all ranks, a multiple of local_batch_size x "
                "ranks; the quotient is the number of accumulated micro-batches. -1 uses one "
                "micro-batch per rank, or debug.elastic_shards micro-batches in an elastic run.",
         .range = {.at_least = 1, .also = -1}});
  s.add("seq_len", &C::seq_len, {.doc = "Tokens per sequence.", .range = kPositive});
  s.add("max_norm", &C::max_norm,
        {.doc = "Maximum global gradient norm; larger gradients are scaled down to it. 0 disables "
                "clipping.",
         .range = kNotNegative});
  s.add("steps", &C::steps, {.doc = "Number of optimizer steps.", .range = kPositive});
  s.add(
      "mixed_precision_param", &C::mixed_precision_param,
      {.doc =
           "Type that parameters are cast to for the forward and backward; master weights and "
           "optimizer state stay float32. float16 scales the loss as configured in [grad_scaler].",
       .choices = {"float32", "bfloat16", "float16"}});
  s.add("mixed_precision_reduce", &C::mixed_precision_reduce,
        {.doc = "Type in which parameter gradients are stored and sent. Sums over ranks and "
                "micro-batches are float32 either way. float16 is not offered: it has too little "
                "range for sums and saves no bytes over bfloat16.",
         .choices = {"float32", "bfloat16"}});
  s.add("keep_low_precision", &C::keep_low_precision,
        {.doc = "Whether a copy of the parameters in the type of mixed_precision_param is kept "
                "between steps and written by the update, instead of casting the master weights at "
                "every use: less computation, more memory. The bits are the same.",
         .effective_when = &kRoundsParams});
  s.add("loss_chunks", &C::loss_chunks,
        {.doc = "Number of chunks along the sequence in which the head and the loss are computed: "
                "only the logits of one chunk exist at a time. Changes the order of sums.",
         .range = kPositive});
  s.add("reduce_every_micro_batch", &C::reduce_every_micro_batch,
        {.doc = "Whether gradients are reduced over the ranks after every micro-batch. If false, "
                "full gradients are accumulated on each rank and reduced once per step: less "
                "traffic, more memory.",
         .effective_when = &kReducesOften});
  s.add("nonfinite", &C::nonfinite,
        {.doc = "On a loss or gradient that is not finite: skip the update and continue, or stop. "
                "Parameters are unchanged either way.",
         .choices = {"skip", "stop"}});
  s.add("nonfinite_limit", &C::nonfinite_limit,
        {.doc = "Consecutive steps that may be skipped before the run stops. Steps that only "
                "reduced the loss scale of float16 do not count.",
         .range = kPositive,
         .effective_when = &kSkips});
}

void add_grad_scaler(Keys& keys) {
  using C = GradScalerConfig;
  SectionKeys s(keys, "grad_scaler", &Config::grad_scaler);
  s.add("init_scale", &C::init_scale,
        {.doc = "Loss scale of the first step, a power of two.",
         .range = {.at_least = kMinLossScale, .at_most = kMaxLossScale},
         .effective_when = &kScales});
  s.add("growth_factor", &C::growth_factor,
        {.doc = "Factor by which the scale grows after growth_interval good steps, a power of two.",
         .range = {.above = 1},
         .effective_when = &kScales});
  s.add("backoff_factor", &C::backoff_factor,
        {.doc = "Factor by which the scale shrinks, down to 1, when a gradient is not finite; a "
                "power of two.",
         .range = {.above = 0, .below = 1},
         .effective_when = &kScales});
  s.add("growth_interval", &C::growth_interval,
        {.doc = "Consecutive good steps before the scale grows.",
         .range = {.at_least = 1, .at_most = 2147483647},
         .effective_when = &kScales});
}

void add_optimizer(Keys& keys) {
  using C = OptimizerConfig;
  const Range beta{.at_least = 0, .below = 1};
  SectionKeys s(keys, "optimizer", &Config::optimizer);
  s.add("name", &C::name, {.doc = "Update rule.", .choices = {"AdamW"}});
  s.add("lr", &C::lr, {.doc = "Peak learning rate.", .range = kNotNegative});
  s.add("beta1", &C::beta1, {.doc = "Decay of the first moment.", .range = beta});
  s.add("beta2", &C::beta2, {.doc = "Decay of the second moment.", .range = beta});
  s.add("eps", &C::eps,
        {.doc = "Added to the square root of the second moment.",
         // Below, float32 rounds it to 0; above, it hides any gradient.
         .range = {.at_least = 1e-30, .at_most = 1}});
  s.add("weight_decay", &C::weight_decay,
        {.doc = "Decoupled decay of parameters with two or more dimensions; each step subtracts lr "
                "x weight_decay (at most 1) of a parameter.",
         .range = kNotNegative});
}

void add_lr_scheduler(Keys& keys) {
  using C = LrSchedulerConfig;
  SectionKeys s(keys, "lr_scheduler", &Config::lr_scheduler);
  s.add("warmup_steps", &C::warmup_steps,
        {.doc = "Steps over which the learning rate rises linearly to its peak.",
         .range = kNotNegative});
  s.add("total_steps", &C::total_steps,
        {.doc = "Step at which the decay ends.",
         .range = kPositive,
         .unset = "training.steps",
         .effective_when = &kDecays});
  s.add("decay_ratio", &C::decay_ratio,
        {.doc = "Final fraction of total_steps in which the learning rate decays; between warmup "
                "and decay it is constant.",
         .range = kShare,
         .unset = "all steps after warmup decay",
         .effective_when = &kDecays});
  s.add("decay_type", &C::decay_type,
        {.doc = "Shape of the decay.", .choices = {"linear", "sqrt", "cosine", "constant"}});
  s.add("min_lr_factor", &C::min_lr_factor,
        {.doc = "Learning rate at the end of the decay, as a fraction of the peak.",
         .range = kShare,
         .effective_when = &kDecays});
}

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
                "number that the cost model finds fastest.",
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

void add_checkpoint(Keys& keys) {
  using C = CheckpointConfig;
  SectionKeys s(keys, "checkpoint", &Config::checkpoint);
  s.add("enable", &C::enable, {.doc = "Whether the trained weights are saved at the end."});
  s.add("folder", &C::folder,
        {.doc = "Folder of the saved weights, under job.dump_folder.", .effective_when = &kSaves});
  s.add("initial_load_path", &C::initial_load_path,
        {.doc = "Weights to start from: a Hugging Face folder or a safetensors file; empty starts "
                "from random weights."});
  s.add("export_dtype", &C::export_dtype,
        {.doc = "Type of the saved weights.",
         .choices = {"float32", "bfloat16"},
         .effective_when = &kSaves});
}

void add_reporting(Keys& keys) {
  SectionKeys metrics(keys, "metrics", &Config::metrics);
  metrics.add("log_freq", &MetricsConfig::log_freq,
              {.doc = "Steps between progress lines.", .range = kPositive});
  metrics.add(
      "file", &MetricsConfig::file,
      {.doc = "File with one JSON object per step, under job.dump_folder; empty writes none."});
  SectionKeys validation(keys, "validation", &Config::validation);
  validation.add("enable", &ValidationConfig::enable,
                 {.doc = "Whether the loss is measured on held-out tokens during the run."});
  validation.add("dataset_path", &ValidationConfig::dataset_path,
                 {.doc = "Token file to validate on.", .effective_when = &kValidatesFile});
  validation.add("freq", &ValidationConfig::freq,
                 {.doc = "Steps between validations; the last step is always validated.",
                  .range = kPositive,
                  .effective_when = &kValidates});
  validation.add(
      "steps", &ValidationConfig::steps,
      {.doc = "Micro-batches per validation and rank; with debug.deterministic = \"elastic\", each "
              "stands for debug.elastic_shards micro-batches over all ranks.",
       .range = kPositive,
       .effective_when = &kValidates});
}

void add_machine(Keys& keys) {
  SectionKeys debug(keys, "debug", &Config::debug);
  debug.add("seed", &DebugConfig::seed,
            {.doc = "Seed for initial weights, data order and dropout.",
             .range = {.at_least = 0, .at_most = 9007199254740992.0}});
  debug.add("deterministic", &DebugConfig::deterministic,
            {.doc = "Which runs give the same losses and parameters, bit for bit: runs on the same "
                    "number of ranks, or all runs, on any number of ranks and with any "
                    "accumulation. \"elastic\" costs memory for gradients and some time.",
             .choices = {"same_ranks", "elastic"}});
  debug.add("elastic_shards", &DebugConfig::elastic_shards,
            {.doc = "Micro-batches per step over all ranks, a power of two and a multiple of the "
                    "ranks. A run matches, bit for bit, a run on that many ranks.",
             .range = {.at_least = 1, .at_most = 65536},
             .effective_when = &kElastic});
  SectionKeys device(keys, "device", &Config::device);
  device.add("backend", &DeviceConfig::backend,
             {.doc = "What runs the plan; null computes nothing and works only with weft plan."});
  device.add("threads", &DeviceConfig::threads,
             {.doc = "Compute threads; 0 uses every core. Results do not depend on it.",
              .range = {.at_least = 0, .at_most = kMaxThreads}});
  device.add("cuda_graph", &DeviceConfig::cuda_graph,
             {.doc = "Whether to replay each program of the plan as one CUDA graph from its second "
                     "run on. Results do not depend on it.",
              .effective_when = &kOverlapsSteps});
  device.add(
      "step_by_step", &DeviceConfig::step_by_step,
      {.doc = "Whether to wait for each step of the plan before starting the next one, so that a "
              "device error names its step. Slow: nothing overlaps. Results do not depend on it."});
  device.add("share_gpu", &DeviceConfig::share_gpu,
             {.doc = "For tests: all ranks use GPU 0 and communicate through sockets, instead of "
                     "one GPU per rank.",
              .effective_when = &kManyRanks});
  device.add("tf32", &DeviceConfig::tf32,
             {.doc = "Whether to round the operands of f32 matmuls to tf32, with 10 mantissa bits: "
                     "several times faster, less accurate.",
              .effective_when = &kMultipliesF32});
  device.add(
      "spec", &DeviceConfig::spec,
      {.doc =
           "Machine that the plan is made for: \"auto\" depends on the backend; otherwise a "
           "built-in name (a100, a100x8, b200, cpu, gb200, h100, h100x8, h200, h200x1) or the path "
           "of a TOML file. a100, b200 and gb200 are scaled from the h100 by their data sheets."});
  device.add("tuning", &DeviceConfig::tuning,
             {.doc = "TOML file of library algorithms measured by weft bench tune; empty uses the "
                     "library's default. Results depend on it, within rounding."});
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
  add_job(keys);
  add_model(keys);
  add_training(keys);
  add_grad_scaler(keys);
  add_optimizer(keys);
  add_lr_scheduler(keys);
  add_parallelism(keys);
  add_activation_checkpoint(keys);
  add_compile(keys);
  add_comm(keys);
  add_checkpoint(keys);
  add_reporting(keys);
  add_machine(keys);
  return keys;
}

}  // namespace

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections = {
      {"job", "The run as a whole."},
      {"model", "The model to train: a preset and changes to its sizes."},
      {"training", "Data, batch sizes and precision."},
      {"grad_scaler", "The loss scale that keeps float16 gradients in range."},
      {"optimizer", "The update rule."},
      {"lr_scheduler", "The learning rate over the steps."},
      {"parallelism", "How ranks divide the work."},
      {"activation_checkpoint", "Memory against time: what the backward recomputes."},
      {"compile", "The compiler's passes and their dumps."},
      {"comm", "Communication between ranks."},
      {"checkpoint", "Weights read at the start and written at the end."},
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
