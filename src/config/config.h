// Every option of a run as a tree of plain structs with defaults, one struct per TOML section.
// load.h creates a Config, which is then only read; derived values (accumulation, mesh sizes,
// learning rate) are computed by functions, never written back. An option that is unset by default
// is an std::optional. Values listed in other folders (models, backends, passes, ops) are strings,
// those listed here are enums. schema*.cpp describe each key.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// Element type of parameters in compute, of reductions and of exported weights.
enum class Precision { Float32, Bfloat16, Float16 };

// Where training tokens come from.
enum class Dataset { Synthetic, File };

// What happens on a step whose loss or gradient is not finite.
enum class NonFinitePolicy { Skip, Stop };

// Shape of the learning rate after warmup.
enum class DecayType { Linear, Sqrt, Cosine, Constant };

// Whether gathered weights are dropped after the forward.
enum class ReshardPolicy { Default, Always, Never };

// How ranks that share a sequence see each other's keys and values.
enum class ContextMethod { AllGather, Ring, Auto };
enum class OverflowPolicy { Replay, Drop };

// How the collectives of parameters are grouped into buckets.
enum class BucketingMode { None, TransformerBlock, Size, Manual, Auto };

// Who decides the order in which values are summed over ranks.
enum class Reduction { Library, Ordered };

// Which runs of one config give the same bits: those on the same number of ranks, or all runs.
enum class Determinism { SameRanks, Elastic };

// What is kept for the backward and what is recomputed.
enum class RecomputeMode { None, Full, Selective, MemoryBudget };

// Whether checkpoints are written while training continues.
enum class AsyncMode { Disabled, Async };

// What happens to a checkpoint that is due while another one is being written.
enum class BusyPolicy { Wait, Skip };

struct JobConfig {
  std::string description;
  std::string dump_folder = "./runs/default";
};

// Unset sizes come from `flavor`: a preset, or the config.json of a Hugging Face folder.
struct ModelConfig {
  std::string name = "gpt2";
  std::string flavor = "tiny";
  std::optional<int64_t> vocab_size;  // kVocabularyOfData: that of the data's tokenizer
  std::optional<int64_t> dim;
  std::optional<int64_t> n_layers;
  std::optional<int64_t> n_heads;
  std::optional<int64_t> n_kv_heads;
  std::optional<int64_t> ffn_dim;
  std::optional<int64_t> n_experts;
  std::optional<int64_t> experts_per_token;
  std::optional<int64_t> expert_ffn_dim;
  std::optional<int64_t> max_seq_len;
  std::optional<double> norm_eps;
  std::optional<double> dropout;
  std::optional<bool> bias;
  std::optional<bool> tie_embeddings;
  std::optional<double> rope_theta;
  std::optional<std::string> rope_scaling;  // "none", "llama3" or "yarn"
};

// The value of model.vocab_size that means "the vocabulary of the training data's tokenizer".
constexpr int64_t kVocabularyOfData = -1;

struct TrainingConfig {
  Dataset dataset = Dataset::Synthetic;
  std::string dataset_path;
  std::vector<std::string> dataset_mix;
  int64_t local_batch_size = 8;
  int64_t global_batch_size = -1;
  int64_t seq_len = 64;
  double max_norm = 1.0;
  int64_t steps = 1000;
  Precision mixed_precision_param = Precision::Float32;
  Precision mixed_precision_reduce = Precision::Float32;
  bool keep_low_precision = false;
  int64_t loss_chunks = 1;
  double router_aux_loss = 0;
  double router_z_loss = 0;
  bool document_mask = false;
  bool reduce_every_micro_batch = true;
  NonFinitePolicy nonfinite = NonFinitePolicy::Skip;
  int64_t nonfinite_limit = 3;
};

// The dynamic loss scale of float16 training, named as in torch.amp.GradScaler.
struct GradScalerConfig {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

struct OptimizerConfig {
  std::string name = "AdamW";
  double lr = 8e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double expert_bias_rate = 0.001;
  double weight_decay = 0.1;
};

struct LrSchedulerConfig {
  int64_t warmup_steps = 200;
  std::optional<int64_t> total_steps;
  std::optional<double> decay_ratio;
  DecayType decay_type = DecayType::Linear;
  double min_lr_factor = 0.0;
};

struct ParallelismConfig {
  int64_t data_parallel_replicate_degree = 1;
  int64_t data_parallel_shard_degree = -1;
  int64_t context_parallel_degree = 1;
  ContextMethod context_parallel_method = ContextMethod::AllGather;
  int64_t tensor_parallel_degree = 1;
  int64_t expert_parallel_degree = 1;
  std::optional<double> expert_capacity_factor;
  OverflowPolicy expert_overflow = OverflowPolicy::Replay;
  bool sequence_parallel = true;
  bool disable_loss_parallel = false;
  bool enable_async_tensor_parallel = true;
  int64_t async_tensor_parallel_chunks = -1;
  ReshardPolicy fsdp_reshard_after_forward = ReshardPolicy::Default;
  std::optional<int64_t> zero_stage;
};

struct ActivationCheckpointConfig {
  RecomputeMode mode = RecomputeMode::None;
  std::string selective_ac_option = "2";
  std::vector<std::string> save_ops = {"matmul", "grouped_matmul", "attention",
                                       "document_attention"};
  double memory_budget = 0.5;
};

struct CompileConfig {
  std::vector<std::string> disable_passes;
  std::string dump_folder;
  std::vector<std::string> dump_passes = {"all"};
  BucketingMode bucketing = BucketingMode::TransformerBlock;
  int64_t bucket_min_parameters = 1'000'000;
  std::vector<std::string> buckets;
  bool overlap = true;
  int64_t prefetch = 1;
  std::vector<std::string> overlap_with;
  bool shared_gather = true;
};

// Communication between the ranks of one job; the slow link is for tests and demonstrations.
struct CommConfig {
  double timeout_seconds = 10;
  Reduction reduction = Reduction::Library;
  double link_bandwidth = 0;  // bytes per second; 0: no limit
  double link_latency = 0;    // seconds
};

struct CheckpointConfig {
  bool enable = true;
  std::string folder = "checkpoints";
  int64_t interval = 0;  // steps; 0: at the end only
  bool weights_only = false;
  Precision export_dtype = Precision::Float32;
  int64_t max_file_bytes = 50'000'000'000;
  int64_t keep_latest_k = 10;
  int64_t keep_every = 0;
  AsyncMode async_mode = AsyncMode::Disabled;
  BusyPolicy if_busy = BusyPolicy::Wait;
  std::string initial_load_path;
};

struct MetricsConfig {
  int64_t log_freq = 10;
  std::string file = "metrics.jsonl";
};

struct ValidationConfig {
  bool enable = false;
  std::string dataset_path;
  int64_t freq = 100;
  int64_t steps = 10;
};

struct DebugConfig {
  int64_t seed = 1337;
  Determinism deterministic = Determinism::SameRanks;
  int64_t elastic_shards = 8;
};

struct DeviceConfig {
  std::string backend = "cpu";
  int64_t threads = 0;
  bool cuda_graph = true;
  bool step_by_step = false;
  bool share_gpu = false;
  bool tf32 = false;
  std::string spec = "auto";
  std::string tuning;
};

// The options of one run.
struct Config {
  JobConfig job;
  ModelConfig model;
  TrainingConfig training;
  GradScalerConfig grad_scaler;
  OptimizerConfig optimizer;
  LrSchedulerConfig lr_scheduler;
  ParallelismConfig parallelism;
  ActivationCheckpointConfig activation_checkpoint;
  CompileConfig compile;
  CommConfig comm;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;
  ValidationConfig validation;
  DebugConfig debug;
  DeviceConfig device;

  // How messages refer to each key that the user set: "a.toml:3: training.steps = 0" or "command
  // line: --training.steps=0". All other keys have their defaults.
  std::map<std::string, std::string> set_by_user;
};

}  // namespace weft
