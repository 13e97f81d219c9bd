#include "tools/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/half.h"
#include "base/text.h"
#include "config/derived.h"
#include "config/lr_schedule.h"
#include "plan/index_map.h"
#include "runtime/comm/threads.h"
#include "train/session.h"
#include "train/training_data.h"

namespace weft {

namespace {

// A full value, or parameter, at some point of a run.
struct FullValue {
  std::string name;
  std::string where;
  int64_t step = 0;
  Shape shape;
  std::vector<float> elements;
  std::string ranks;  // replicas that differ; empty: none
  double floor = 0;   // differences below this mean nothing
};

using Sink = std::function<void(FullValue&&)>;

std::vector<float> as_floats(const std::vector<char>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(dtype_bytes(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    if (dtype == DType::F32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
      continue;
    }
    std::memcpy(&half, bytes.data() + 2 * i, 2);
    values[i] = dtype == DType::BF16 ? f32_from_bf16(half) : f32_from_f16(half);
  }
  return values;
}

bool is_comparable(const PlanValue& value) {
  const DType dtype = value.type.dtype;
  return value.is_read && !is_flat(value.type) && !value.type.future &&
         (dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16);
}

// The first rank of those that have the same elements as this one: the others differ from it only
// along axes that the placement does not name.
int64_t representative(const TensorType& type, const Mesh& mesh, int64_t rank) {
  int64_t first = 0;
  for (const MeshAxis& axis : numbering_of(type.placement, mesh)) {
    const bool placed = placement_over(type, axis.name) != nullptr;
    first = first * axis.size + (placed ? mesh.coordinate(rank, axis.name) : 0);
  }
  return first;
}

// Whether a value is computed by a fused op depends on its neighbours.
std::string plain_name(std::string name) {
  constexpr std::string_view kFused = ".fused";
  if (name.ends_with(kFused)) name.resize(name.size() - kFused.size());
  return name;
}

// Puts values together from what every rank has of them.
class Assembler {
 public:
  Assembler(const Compiled& compiled, Sink sink)
      : compiled_(compiled), ranks_(compiled.plan.mesh.ranks()), sink_(std::move(sink)) {}

  // Called by every rank for the same steps in the same order.
  void add(int64_t rank, int64_t train_step, size_t step, size_t result, std::vector<float> local) {
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<float>>& locals = pending_[{train_step, step, result}];
    locals.resize(static_cast<size_t>(ranks_));
    locals[static_cast<size_t>(rank)] = std::move(local);
    const bool complete = std::all_of(locals.begin(), locals.end(),
                                      [](const auto& values) { return !values.empty(); });
    if (!complete) return;
    sink_(assemble(train_step, step, result, locals));
    pending_.erase({train_step, step, result});
  }

  // AdamW also moves elements whose gradient is zero except for rounding, by a part of the learning
  // rate.
  void add_param(int64_t train_step, const ParamInfo& param, double lr, std::vector<float> values) {
    const std::lock_guard lock(mutex_);
    sink_({.name = cat("parameter ", param.name),
           .where = "after the update",
           .step = train_step,
           .shape = param.shape,
           .elements = std::move(values),
           .ranks = {},
           .floor = 0.25 * lr});
  }

  // What the step reports: no plan step reads it, so it is not among the values above.
  void add_loss(int64_t train_step, double loss) {
    const std::lock_guard lock(mutex_);
    sink_({.name = "the loss",
           .where = "of all ranks",
           .step = train_step,
           .shape = {},
           .elements = {static_cast<float>(loss)},
           .ranks = {}});
  }

 private:
  FullValue assemble(int64_t train_step, size_t step, size_t result,
                     const std::vector<std::vector<float>>& locals) const {
    const PlanValue& value = compiled_.values.at(step).at(result);
    const Step& planned = compiled_.plan.program(ProgramKind::Last).at(step);
    FullValue full{
        .name = "%" + plain_name(value.name),
        .where = cat(planned.path, planned.path.empty() ? "" : " ", phase_name(planned.phase)),
        .step = train_step,
        .shape = value.type.shape,
        .elements = std::vector<float>(static_cast<size_t>(value.type.elements())),
        .ranks = {}};
    const ParamShape shape{value.name, value.type.shape, value.parts};
    const Mesh& mesh = compiled_.plan.mesh;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const std::vector<float>& local = locals[static_cast<size_t>(rank)];
      const int64_t first = representative(value.type, mesh, rank);
      if (first != rank) {
        const std::vector<float>& same = locals[static_cast<size_t>(first)];
        const bool equal = std::memcmp(same.data(), local.data(), local.size() * 4) == 0;
        if (!equal && full.ranks.empty()) full.ranks = cat("ranks ", first, " and ", rank);
        continue;
      }
      for (const ElementRun& run : local_runs(shape, value.type.placement, mesh, rank)) {
        for (int64_t i = 0; i < run.elements; ++i) {
          full.elements[static_cast<size_t>(run.first + i)] +=
              local[static_cast<size_t>(run.at + i)];
        }
      }
    }
    return full;
  }

  const Compiled& compiled_;
  const int64_t ranks_;
  const Sink sink_;
  std::mutex mutex_;
  std::map<std::tuple<int64_t, size_t, size_t>, std::vector<std::vector<float>>> pending_;
};

// Trains on one rank and hands every result to the assembler.
void run_rank(const ComparedRun& run, const CompareOptions& options, Communicator& comm,
              Assembler& assembler) {
  const TrainingData data(run.config, open_training_files(run.config),
                          run.compiled.spec.vocab_size);
  Session session(run.config, run.compiled, comm);
  session.initialize(run.config.debug.seed);
  int64_t train_step = 0;
  session.observe_steps([&](size_t step) {
    const std::vector<PlanValue>& values = run.compiled.values.at(step);
    for (size_t i = 0; i < values.size(); ++i) {
      if (!is_comparable(values[i])) continue;
      const TensorRef& ref = run.compiled.plan.program(ProgramKind::Last)[step].results[i];
      std::vector<char> bytes(static_cast<size_t>(tensor_bytes(ref)));
      session.executor().read_result(ProgramKind::Last, step, i, bytes.data(), tensor_bytes(ref));
      assembler.add(comm.rank(), train_step, step, i, as_floats(bytes, ref.dtype));
    }
  });
  for (; train_step < options.steps; ++train_step) {
    const StepResult result = session.train_step(
        {.step = train_step,
         .seed = run.config.debug.seed,
         .lr = learning_rate(run.config, train_step)},
        [&](int64_t first, Batch& batch) { data.fill(train_step, first, batch); });
    if (comm.rank() == 0) assembler.add_loss(train_step, result.loss);
    const std::vector<ParamInfo>& params = run.compiled.params;
    for (size_t i = 0; i < params.size(); ++i) {
      std::vector<float> values(comm.rank() == 0 ? static_cast<size_t>(count(params[i].shape))
                                                 : size_t{0});
      session.read_param(i, values);
      if (comm.rank() == 0) {
        assembler.add_param(train_step, params[i], learning_rate(run.config, train_step),
                            std::move(values));
      }
    }
  }
}

void run_all(const ComparedRun& run, const CompareOptions& options, Sink sink) {
  Assembler assembler(run.compiled, std::move(sink));
  const Mesh& mesh = run.compiled.plan.mesh;
  if (mesh.axes.empty()) return run_rank(run, options, single_rank(), assembler);
  ThreadsJob job(mesh.ranks());
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr error;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = job.connect({mesh, rank}, comm_options(run.config));
      try {
        run_rank(run, options, *comm, assembler);
      } catch (const std::exception& failure) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        comm->abort(failure.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

std::string element_text(const Shape& shape, int64_t element) {
  Shape index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = element % shape[dim];
    element /= shape[dim];
  }
  return to_string(index);
}

// Values in f32 differ by as much if they are computed from rounded ones.
double default_tolerance(const ComparedRun& one, const ComparedRun& two) {
  const bool rounds = one.config.training.mixed_precision_param != Precision::Float32 ||
                      two.config.training.mixed_precision_param != Precision::Float32;
  return rounds ? 5e-2 : 1e-4;
}

// The element that differs most, if the difference is not allowed.
std::optional<ValueDifference> difference_of(const FullValue& one, const FullValue& two,
                                             double tolerance) {
  ValueDifference found{
      .value = two.name, .where = two.where, .step = two.step, .element = {}, .ranks = {}};
  double largest = 0, worst = 0;
  int64_t at = -1;
  for (size_t i = 0; i < one.elements.size(); ++i) {
    const double a = one.elements[i], b = two.elements[i];
    if (std::isfinite(a)) largest = std::max(largest, std::fabs(a));
    const bool equal = a == b || (std::isnan(a) && std::isnan(b));
    const double distance = equal ? 0 : std::fabs(a - b);
    if (equal || (at >= 0 && distance <= worst)) continue;
    worst = std::isnan(distance) ? INFINITY : distance;
    at = static_cast<int64_t>(i);
  }
  const bool replicas = !one.ranks.empty() || !two.ranks.empty();
  const double allowed = std::max(one.floor, tolerance * largest);
  if (!replicas && (at < 0 || worst <= allowed)) return std::nullopt;
  if (replicas) {
    found.ranks =
        two.ranks.empty() ? one.ranks + " of the first run" : two.ranks + " of the second run";
  }
  if (at < 0) at = 0;
  found.element = element_text(one.shape, at);
  found.one = one.elements.empty() ? 0 : one.elements[static_cast<size_t>(at)];
  found.two = two.elements.empty() ? 0 : two.elements[static_cast<size_t>(at)];
  return found;
}

// A chunk of the loss holds other tokens where ranks share sequences.
bool is_loss_chunk(const FullValue& value, const ComparedRun& run) {
  const TrainingConfig& training = run.config.training;
  const Degrees degrees = degrees_of(run.config, run.compiled.plan.mesh.ranks());
  const Shape& shape = value.shape;
  return training.loss_chunks > 1 && tokens_per_rank(run.config, degrees) < training.seq_len &&
         shape.size() > 1 && shape[0] == training.local_batch_size * degrees.batch_ranks() &&
         shape[1] == training.seq_len / training.loss_chunks;
}

void check_same(const ComparedRun& one, const ComparedRun& two) {
  const auto degrees = [](const ComparedRun& run) {
    return degrees_of(run.config, run.compiled.plan.mesh.ranks());
  };
  const auto tokens = [&](const ComparedRun& run) {
    return global_batch_size(run.config, degrees(run));
  };
  USER_CHECK(one.compiled.spec == two.compiled.spec,
             "the runs train different models; compare needs the same keys under model in both");
  USER_CHECK(
      one.config.training.seq_len == two.config.training.seq_len && tokens(one) == tokens(two),
      "the runs have batches of ", tokens(one), " x ", one.config.training.seq_len, " and ",
      tokens(two), " x ", two.config.training.seq_len,
      " tokens, expected the same; set training.global_batch_size and "
      "training.local_batch_size");
  const int64_t slots_one = accumulation_steps(one.config, degrees(one));
  const int64_t slots_two = accumulation_steps(two.config, degrees(two));
  USER_CHECK(slots_one == slots_two, "the runs accumulate ", slots_one, " and ", slots_two,
             " micro-batches, expected as many; set training.local_batch_size");
  for (const ComparedRun* run : {&one, &two}) {
    USER_CHECK(find_backend(run->config.device.backend).connect == nullptr ||
                   run->compiled.plan.mesh.axes.empty(),
               describe_key(run->config, "device.backend"),
               " cannot run ranks as threads; use \"cpu\" or \"reference\"");
  }
}

}  // namespace

PlanComparison compare_plans(const ComparedRun& one, const ComparedRun& two,
                             const CompareOptions& options) {
  check_same(one, two);
  struct Stored {
    FullValue value;
    size_t order = 0;
  };
  std::map<std::pair<int64_t, std::string>, Stored> known;
  run_all(one, options, [&](FullValue&& value) {
    const auto key = std::pair(value.step, value.name);
    known[key] = {std::move(value), known.size()};
  });
  PlanComparison comparison;
  size_t first = known.size();
  run_all(two, options, [&](FullValue&& value) {
    const auto found = known.find({value.step, value.name});
    if (found == known.end() || found->second.value.shape != value.shape) return;
    if (is_loss_chunk(value, one) || is_loss_chunk(value, two)) return;
    const FullValue& other = found->second.value;
    ++comparison.values;
    const bool same = std::equal(value.elements.begin(), value.elements.end(),
                                 other.elements.begin(), other.elements.end());
    comparison.identical += same ? 1 : 0;
    if (found->second.order >= first) return;
    auto difference =
        difference_of(other, value, options.tolerance.value_or(default_tolerance(one, two)));
    if (!difference) return;
    first = found->second.order;
    comparison.first = std::move(difference);
  });
  return comparison;
}

std::string to_string(const PlanComparison& comparison) {
  const std::string counts =
      cat(comparison.values, " values compared, ", comparison.identical, " of them identical");
  if (!comparison.first) {
    const bool all = comparison.identical == comparison.values;
    return cat(all ? "identical: " : "within tolerance: ", counts);
  }
  const ValueDifference& first = *comparison.first;
  return cat("first difference: ", first.value, " (", first.where, ") in step ", first.step + 1,
             ", element ", first.element, ": ", format_double(first.one), " and ",
             format_double(first.two),
             first.ranks.empty() ? "" : cat("; replicas differ between ", first.ranks), "\n",
             counts);
}

}  // namespace weft
