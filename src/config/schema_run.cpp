// The keys that say what a run writes, how reproducible it is, and what it runs on.
#include "base/parallel.h"
#include "config/derived.h"
#include "config/schema_keys.h"

namespace weft {
namespace {

const Condition kSaves{"checkpoint.enable = true",
                       [](const Config& c, int64_t) { return c.checkpoint.enable; }};
const Condition kSavesOften{
    "checkpoint.enable = true and checkpoint.interval above 0",
    [](const Config& c, int64_t) { return c.checkpoint.enable && c.checkpoint.interval > 0; }};
const Condition kRemoves{
    "checkpoint.enable = true and checkpoint.keep_latest_k above 0",
    [](const Config& c, int64_t) { return c.checkpoint.enable && c.checkpoint.keep_latest_k > 0; }};
const Condition kSavesAsync{"checkpoint.async_mode = \"async\"", [](const Config& c, int64_t) {
                              return c.checkpoint.enable &&
                                     c.checkpoint.async_mode == AsyncMode::Async;
                            }};
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

void add_checkpoint(Keys& keys) {
  using C = CheckpointConfig;
  SectionKeys s(keys, "checkpoint", &Config::checkpoint);
  s.add("enable", &C::enable, {.doc = "Whether checkpoints are saved, at least at the end."});
  s.add("folder", &C::folder,
        {.doc = "Folder of the checkpoints step-N, under job.dump_folder.",
         .effective_when = &kSaves});
  s.add(
      "interval", &C::interval,
      {.doc = "Steps between checkpoints; 0 saves one at the end. An interrupted run always saves "
              "one.",
       .range = kNotNegative,
       .effective_when = &kSaves});
  s.add("weights_only", &C::weights_only,
        {.doc = "Whether checkpoints hold the weights alone. A run cannot resume from them.",
         .effective_when = &kSaves});
  s.add("export_dtype", &C::export_dtype,
        {.doc = "Type of the weights in model.safetensors. With bfloat16, the float32 weights are "
                "kept with the optimizer state.",
         .choices = {"float32", "bfloat16"},
         .effective_when = &kSaves});
  s.add(
      "max_file_bytes", &C::max_file_bytes,
      {.doc = "Bytes of tensors per file; larger sets are split into several files with an index.",
       .range = {.at_least = 1000, .at_most = 1e15},
       .effective_when = &kSaves});
  s.add("keep_latest_k", &C::keep_latest_k,
        {.doc = "Newest checkpoints to keep; older ones are removed after a new one is on disk. 0 "
                "keeps all.",
         .range = kNotNegative,
         .effective_when = &kSaves});
  s.add("keep_every", &C::keep_every,
        {.doc = "Checkpoints of steps that are a multiple of this are never removed; 0: none.",
         .range = kNotNegative,
         .effective_when = &kRemoves});
  s.add("async_mode", &C::async_mode,
        {.doc = "Whether checkpoints are written in the background. \"async\" copies the rank's "
                "shard to host memory and continues training while it is written.",
         .choices = {"disabled", "async"},
         .effective_when = &kSavesOften});
  s.add("if_busy", &C::if_busy,
        {.doc = "What happens to a checkpoint that is due while another one is being written: "
                "training waits for it, or this checkpoint is skipped.",
         .choices = {"wait", "skip"},
         .effective_when = &kSavesAsync});
  s.add("initial_load_path", &C::initial_load_path,
        {.doc = "Weights to start from: the folder of a Hugging Face model, of a run or of a "
                "checkpoint, or a safetensors file; empty starts from random weights."});
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

}  // namespace

void add_run_sections(Keys& keys) {
  add_checkpoint(keys);
  add_reporting(keys);
  add_machine(keys);
}

}  // namespace weft
