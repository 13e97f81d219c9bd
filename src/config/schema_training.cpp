// The keys that say what is trained: model, data, precision, update rule and learning rate.
#include "base/loss_scale.h"
#include "config/derived.h"
#include "config/schema_keys.h"

namespace weft {
namespace {

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
const Condition kReducesOften{
    "more than one rank, several micro-batches per step and no parallelism.zero_stage",
    [](const Config& c, int64_t r) {
      return r > 1 && accumulation_steps(c, degrees_of(c, r)) > 1 && !c.parallelism.zero_stage;
    }};

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
  s.add("n_experts", &C::n_experts,
        {.doc = "Number of experts in the layers that have them.",
         .range = kPositive,
         .unset = preset});
  s.add("experts_per_token", &C::experts_per_token,
        {.doc = "Number of experts that each token goes to.", .range = kPositive, .unset = preset});
  s.add("expert_ffn_dim", &C::expert_ffn_dim,
        {.doc = "Width of the feed-forward of one expert.", .range = kPositive, .unset = preset});
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
         .choices = {"none", "llama3", "yarn"},
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
  s.add(
      "router_aux_loss", &C::router_aux_loss,
      {.doc = "Coefficient of the auxiliary loss that balances experts, which is added to the "
              "loss of training: per layer with experts, it is the coefficient itself where all "
              "experts get the same number of tokens, and more where those with many tokens score "
              "high.",
       .range = kNotNegative});
  s.add(
      "router_z_loss", &C::router_z_loss,
      {.doc =
           "Coefficient of the z-loss, which keeps the logits of routers small: per layer "
           "with experts, it is the coefficient times the mean over the tokens of the squared log "
           "of the sum of exponentials, and is added to the loss of training.",
       .range = kNotNegative});
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
  s.add("expert_bias_rate", &C::expert_bias_rate,
        {.doc = "How much the bias of a router changes per step, to balance the load of experts; "
                "for models whose routers have one.",
         .range = kNotNegative});
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

}  // namespace

void add_training_sections(Keys& keys) {
  add_job(keys);
  add_model(keys);
  add_training(keys);
  add_grad_scaler(keys);
  add_optimizer(keys);
  add_lr_scheduler(keys);
}

}  // namespace weft
