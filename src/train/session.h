// A compiled plan on a device: parameters and batches in, losses out. The trainer, verification and
// generation all use it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compile/compile.h"
#include "config/derived.h"
#include "runtime/comm/single_rank.h"
#include "runtime/device.h"
#include "runtime/executor.h"
#include "train/expert_load.h"
#include "train/param_store.h"

namespace weft {

// One micro-batch of batch x seq_len. Targets below 0 are ignored. Positions are token positions
// within documents, for a plan that masks documents; empty: every sample is one document.
struct Batch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int32_t> positions = {};
};

// Fills a micro-batch with samples from `first_sample` of the step's global batch on.
using BatchFn = std::function<void(int64_t first_sample, Batch& batch)>;

struct StepScalars {
  int64_t step = 0;  // counts from 0; seeds the randomness
  int64_t seed = 0;
  double lr = 0;
};

struct StepResult {
  double loss = 0;       // mean over the valid tokens of the global batch
  double grad_norm = 0;  // before clipping; non-finite means the update was skipped
  std::optional<double> loss_scale = {};   // that the step used; grad_norm excludes it
  std::optional<ExpertLoad> experts = {};  // of a model that has experts
};

// Timeouts and link speed between ranks, from the config.
CommOptions comm_options(const Config& config);

// The communicator for devices of the config's backend, created from that of the processes.
std::unique_ptr<Communicator> connect_devices(const Config& config,
                                              std::unique_ptr<Communicator> hosts);

class Session {
 public:
  // Creates the device and allocates exactly the plan's arena. `comm` connects this rank to the
  // others; it outlives the session.
  Session(const Config& config, Compiled compiled, Communicator& comm = single_rank());

  const Compiled& compiled() const { return compiled_; }
  const Device& device() const { return *device_; }
  HostMemory allocate_host(int64_t bytes) { return device_->allocate_host(bytes); }
  Executor& executor() { return *executor_; }

  // From now on the program Last runs step by step; `observe` is called after each.
  void observe_steps(std::function<void(size_t step)> observe) { observe_ = std::move(observe); }

  // Where this rank stores parameters and their states.
  ParamStore& params() { return *params_; }
  // Sets every parameter to its initial value: a pure function of (seed, name, element).
  void initialize(uint64_t seed);
  // Sets every parameter; asks only for the elements that this rank stores.
  void set_params(const ElementValues& values);
  // Copies parameter i, in full and in f32, to or from the device. All ranks must read the same
  // parameters in the same order; a rank that passes an empty span only participates.
  void write_param(size_t param, std::span<const float> values);
  void read_param(size_t param, std::span<float> values);

  // The factor that gradients carry until the update removes it; unset if the loss is not scaled.
  std::optional<double> loss_scale() const;

  // One optimizer step over all its micro-batches.
  StepResult train_step(const StepScalars& scalars, const BatchFn& batch);
  // The first samples of a step's micro-batches, in the order in which the step requests them.
  std::vector<int64_t> first_samples() const;
  // The same without an update, for a plan without the optimizer pass: gradients are outputs.
  void forward_backward(const BatchFn& batch);
  // Mean loss of the batches of all ranks through the `eval` program; summed over the ranks first,
  // then as a tree over the batches.
  double evaluate(std::span<const Batch> batches);
  // Logits [seq_len, vocab] of one sequence, from a decode plan.
  std::vector<float> logits(std::span<const int32_t> tokens);

 private:
  void write_scalar(std::string_view name, float value);
  void write_int(std::string_view name, int32_t value);
  std::optional<ExpertLoad> expert_load() const;
  std::vector<float> read_output(std::string_view name) const;
  bool has_input(std::string_view name) const;
  bool scales_loss() const;
  float read_scalar(std::string_view name) const;
  void write_batch(const Batch& batch);
  void write_rows(std::string_view input, std::span<const int32_t> rows, int32_t padding);
  void write_rng(const StepScalars& scalars, int64_t first_sample);
  void run(ProgramKind program);
  int64_t first_sample(int64_t slot) const;
  float run_micro_batches(const StepScalars& scalars, const BatchFn& batch);
  // The programs of all micro-batches but the last, and of the last.
  struct StepPrograms {
    ProgramKind micro = ProgramKind::Micro, last = ProgramKind::Last;
  };
  float run_programs(const StepScalars& scalars, const StepPrograms& programs);

  int64_t ranks() const { return comm_.ranks(); }
  int64_t rank() const { return comm_.rank(); }
  void check_free_memory() const;
  void write_valid_tokens(int64_t own);
  void write_coordinates();

  Config config_;
  Compiled compiled_;
  Communicator& comm_;
  Degrees degrees_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ParamStore> params_;
  std::function<void(size_t step)> observe_;
  std::vector<Batch> batches_;  // of one step; kept to reuse their memory
};

}  // namespace weft
