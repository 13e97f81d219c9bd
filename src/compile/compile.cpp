// Connects the layers: model -> graph -> passes -> plan.
#include "compile/compile.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/one_of.h"
#include "compile/mfu.h"
#include "config/derived.h"
#include "graph/comm_cost.h"
#include "graph/dims.h"
#include "graph/names.h"
#include "graph/text.h"
#include "plan/lower.h"
#include "runtime/device.h"

namespace weft {

namespace {

std::map<std::string, DimParts> packed_params(const std::vector<ParamInfo>& params) {
  std::map<std::string, DimParts> packed;
  for (const ParamInfo& param : params) {
    for (const std::string& dim : param.dims) packed[param.name].push_back(dims::parts_of(dim));
  }
  return packed;
}

// Fills `values`, the results of every step, if it is given.
Plan make_plan(const std::vector<ProgramSource>& sources, const Config& config,
               const Compiled& compiled, std::vector<std::vector<PlanValue>>* values = nullptr) {
  const Backend& backend = find_backend(config.device.backend);
  return lower(sources, {.backend = backend.name,
                         .kernels = backend.kernels(),
                         .device = compiled.device,
                         .shared_gather = config.compile.shared_gather,
                         .ordered_sums = orders_sums(config),
                         .values = values,
                         .packed_params = packed_params(compiled.params)});
}

// Where a graph runs.
struct RunTarget {
  const Mesh& mesh;
  const DeviceSpec& device;
};

// What is compiled, and what is kept of it.
struct CompileTarget {
  const ModelSpec& spec;
  int64_t ranks = 1;
  bool keep_values = false;
};

// The step without a limit to the rows of experts, on the storage of the first graph.
BuiltModel build_replay(const ModelSpec& spec, Config config, BuildOptions build,
                        const Graph& first, const RunTarget& target) {
  config.parallelism.expert_capacity_factor =
      static_cast<double>(config.parallelism.expert_parallel_degree);
  build.counts_lost_rows = false;
  BuiltModel model = build_model(spec, build);
  RunOptions options = run_options(config, Goal::Train, target.mesh, "replay");
  options.buckets = buckets_of(first);
  run_passes(model.graph, pipeline(), config, target.device, options);
  return model;
}

Compiled compile_for(const DeviceSpec& device, const Config& config, const CompileTarget& target) {
  const auto& [spec, ranks, keep_values] = target;
  auto start = std::chrono::steady_clock::now();
  Compiled compiled;
  compiled.spec = spec;
  compiled.device = device;
  const Mesh mesh = mesh_of(config, ranks);
  const Degrees degrees = degrees_of(config, ranks);
  BuildOptions build{.batch = config.training.local_batch_size * degrees.batch_ranks(),
                     .seq_len = planned_seq_len(config, degrees),
                     .documents = config.training.document_mask,
                     .positions = degrees.cp > 1,
                     .kv_repeats = degrees.tp / std::gcd(degrees.tp, spec.n_kv_heads),
                     .router_losses = {.aux = config.training.router_aux_loss,
                                       .z = config.training.router_z_loss}};
  build.padding = build.seq_len - config.training.seq_len;
  build.counts_lost_rows = expert_capacity(config, degrees) > 0;
  BuiltModel step = build_model(spec, build);
  compiled.params = step.params;
  compiled.flops_per_token = model_flops_per_token(step, spec, config.training);
  compiled.reports = run_passes(step.graph, pipeline(), config, compiled.device,
                                run_options(config, Goal::Train, mesh, "train"));
  std::vector<ProgramSource> sources;
  if (accumulation_steps(config, degrees) > 1) sources.push_back({ProgramKind::Micro, &step.graph});
  sources.push_back({ProgramKind::Last, &step.graph});
  std::optional<BuiltModel> replay;
  const bool replays =
      build.counts_lost_rows && config.parallelism.expert_overflow == OverflowPolicy::Replay;
  if (replays) {
    replay = build_replay(spec, config, build, step.graph, {mesh, compiled.device});
    if (sources.size() > 1) sources.push_back({ProgramKind::ReplayMicro, &replay->graph});
    sources.push_back({ProgramKind::ReplayLast, &replay->graph});
  }
  std::optional<BuiltModel> eval;
  if (config.validation.enable) {
    build.mode = BuildMode::Eval;
    eval = build_model(spec, build);
    RunOptions options = run_options(config, Goal::Evaluate, mesh, "eval");
    options.buckets = buckets_of(step.graph);
    run_passes(eval->graph, pipeline(), config, compiled.device, options);
    sources.push_back({ProgramKind::Eval, &eval->graph});
  }
  compiled.plan = make_plan(sources, config, compiled, keep_values ? &compiled.values : nullptr);
  compiled.estimate = step_time(compiled.plan, accumulation_steps(config, degrees));
  compiled.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

// Passes limit the bytes alive at once; fragmentation comes on top. If the arena does not fit, the
// plan is made again with part of the memory reserved for fragmentation, more with every attempt.
// If that is not enough, nothing is gathered ahead, and passes assume no spare memory.
Compiled compile_to_fit(const DeviceSpec& device, const Config& config,
                        const CompileTarget& target) {
  Compiled compiled = compile_for(device, config, target);
  if (device.memory_bytes == 0) return compiled;
  const auto excess = [&] { return rank_bytes(compiled.plan) - device.memory_bytes; };
  const int64_t most_gaps = device.memory_bytes / 4;
  Replanning replanning;
  DeviceSpec smaller = device;
  for (int64_t factor = 1; factor <= 8 && excess() > 0 && excess() <= most_gaps; factor *= 2) {
    smaller.memory_bytes -= factor * excess();
    compiled = compile_for(smaller, config, target);
    ++replanning.times;
  }
  replanning.reserved_bytes = device.memory_bytes - smaller.memory_bytes;
  const bool states_fit = compiled.plan.persistent_bytes <= device.memory_bytes;
  if (excess() > 0 && states_fit && target.ranks > 1 && config.compile.prefetch != 0) {
    Config without = config;
    without.compile.prefetch = 0;
    smaller.memory_bytes = 1;
    Compiled least = compile_for(smaller, without, target);
    if (rank_bytes(least.plan) <= device.memory_bytes) {
      compiled = std::move(least);
      ++replanning.times;
      replanning.asked_prefetch = config.compile.prefetch;
    }
  }
  compiled.replanning = replanning;
  return compiled;
}

// Whether plan a is the faster one of two that fit, or else the one that takes less memory.
bool is_better(const Compiled& a, const Compiled& b, int64_t memory) {
  const auto fits = [&](const Compiled& compiled) {
    return memory == 0 || rank_bytes(compiled.plan) <= memory;
  };
  if (!fits(a) || !fits(b)) return rank_bytes(a.plan) < rank_bytes(b.plan);
  return a.estimate.seconds < b.estimate.seconds;
}

// The method `auto` is the better of the other two.
Compiled compile_methods(const DeviceSpec& device, Config config, const CompileTarget& target) {
  ContextMethod& method = config.parallelism.context_parallel_method;
  if (method != ContextMethod::Auto) return compile_to_fit(device, config, target);
  method = ContextMethod::AllGather;
  Compiled gathered = compile_to_fit(device, config, target);
  if (config.parallelism.context_parallel_degree == 1) return gathered;
  method = ContextMethod::Ring;
  Compiled ring = compile_to_fit(device, config, target);
  return is_better(ring, gathered, device.memory_bytes) ? std::move(ring) : std::move(gathered);
}

// Traffic between hosts is priced by rows for several hosts, never by rows within one host.
void check_hosts(const Config& config, const DeviceSpec& device, int64_t ranks) {
  const int64_t host = ranks_on_host(device, ranks);
  const bool has_rows = std::any_of(device.links.begin(), device.links.end(),
                                    [](const Link& link) { return link.hosts > 1; });
  USER_CHECK(host == ranks || has_rows, describe_key(config, "device.spec"), " has ", host,
             " ranks per host and no links between hosts, found ", ranks, " ranks; use at most ",
             host, ", or add rows for several hosts to its links");
}

// "1, 2 or 4": the degrees that divide all of these sizes.
std::string fitting_degrees(const std::vector<int64_t>& sizes) {
  int64_t common = 0;
  for (const int64_t size : sizes) common = std::gcd(common, size);
  std::vector<std::string> degrees;
  for (int64_t degree = 1; degree <= common; ++degree) {
    if (common % degree == 0) degrees.push_back(cat(degree));
  }
  return one_of(degrees);
}

// Tensor parallelism gives every rank full heads and an equal part of every feed-forward, unless
// ranks share experts instead. Key heads that it does not divide are repeated until it does.
void check_tensor_parallel(const Config& config, const ModelSpec& spec) {
  const int64_t degree = config.parallelism.tensor_parallel_degree;
  std::vector<std::pair<std::string_view, int64_t>> sizes = {{"n_heads", spec.n_heads},
                                                             {"ffn_dim", spec.ffn_dim}};
  if (spec.experts.count > 0 && config.parallelism.expert_parallel_degree == 1) {
    sizes.emplace_back("expert_ffn_dim", spec.experts.ffn_dim);
  }
  std::vector<int64_t> divided;
  for (const auto& [name, size] : sizes) divided.push_back(size);
  for (const auto& [name, size] : sizes) {
    USER_CHECK(size % degree == 0, describe_key(config, "parallelism.tensor_parallel_degree"),
               " does not divide model.", name, " = ", size, "; use ", fitting_degrees(divided));
  }
}

// Expert parallelism gives every rank equally many experts.
void check_expert_parallel(const Config& config, const ModelSpec& spec, int64_t ranks) {
  const Degrees degrees = degrees_of(config, ranks);
  if (degrees.ep == 1) return;
  const std::string key = describe_key(config, "parallelism.expert_parallel_degree");
  const int64_t experts = spec.experts.count;
  USER_CHECK(experts > 0, key, " has no effect: the model ", spec.model,
             " has no experts; remove the key");
  USER_CHECK(experts % degrees.ep == 0, key, " does not divide the ", experts, " experts of ",
             spec.model, "; use ", fitting_degrees({experts, degrees.edp() * degrees.ep}));
}

// Ranks with different choices would compute different bits, so the choices are part of the plan.
void add_choices(const Config& config, Compiled& compiled) {
  compiled.plan.tf32 = config.device.tf32;
  compiled.tuning = load_tuning(config);
  if (compiled.tuning.empty()) return;
  compiled.plan.tuning = std::to_string(hash_text(tuning_to_toml(compiled.tuning)));
}

// A row with an unknown op or type would never be used.
void check_kernels(const DeviceSpec& spec, const std::string& file) {
  for (const KernelShare& kernel : spec.kernels) {
    const std::string where = cat(file, ": kernels: ", in_quotes(to_string(kernel)), ": ");
    USER_CHECK(find_op(kernel.op) != nullptr, where, unknown_op(kernel.op));
    try {
      parse_dtype(kernel.dtype);
    } catch (const UserError& error) {
      throw UserError(ExitCode::Config, where + error.what());
    }
  }
}

Compiled compile_target(const Config& config, const CompileTarget& target) {
  check_tensor_parallel(config, target.spec);
  check_expert_parallel(config, target.spec, target.ranks);
  const DeviceSpec device = device_of_rank(device_spec_of(config), target.ranks);
  check_hosts(config, device, target.ranks);
  Compiled compiled = compile_methods(device, config, target);
  compiled.device = device;
  add_choices(config, compiled);
  return compiled;
}

}  // namespace

RunOptions run_options(const Config& config, Goal goal, const Mesh& mesh,
                       const std::string& graph_name) {
  RunOptions options;
  options.goal = goal;
  options.mesh = mesh;
  const std::string folder = config.compile.dump_folder;
  if (folder.empty()) return options;
  std::vector<std::string> wanted = config.compile.dump_passes;
  const bool all = std::erase(wanted, "all") > 0;
  check_pass_names(wanted, describe_key(config, "compile.dump_passes"));
  options.dump = [=](const std::string& name, const Graph& graph, bool after) {
    std::string pass = name.substr(name.find('-') + 1);
    if (!all && std::find(wanted.begin(), wanted.end(), pass) == wanted.end()) return;
    make_directories(folder);
    write_text_file(cat(folder, "/", graph_name, "-", name, after ? ".after.txt" : ".before.txt"),
                    print_graph(graph));
  };
  return options;
}

DeviceSpec device_spec_of(const Config& config) {
  DeviceSpec spec = load_device_spec(config, find_backend(config.device.backend).spec);
  check_kernels(spec, config.device.spec);
  return spec;
}

Mesh mesh_of(const Config& config, int64_t ranks) {
  const Degrees degrees = degrees_of(config, ranks);
  const bool asked_for = config.parallelism.data_parallel_shard_degree == 1 && ranks == 1;
  Mesh mesh;
  const auto add = [&](std::string_view axis, int64_t size) {
    const bool kept = size > 1 || (axis == names::kShardAxis && asked_for);
    if (kept) mesh.axes.push_back({std::string(axis), size});
  };
  add(names::kReplicateAxis, degrees.dp_replicate);
  add(names::kShardAxis, degrees.dp_shard);
  add(names::kContextAxis, degrees.cp);
  add(names::kTensorAxis, degrees.tp);
  if (degrees.ep == 1) return mesh;
  if (degrees.edp() > 1) {
    mesh.expert_axes.push_back({std::string(names::kExpertDataAxis), degrees.edp()});
  }
  mesh.expert_axes.push_back({std::string(names::kExpertAxis), degrees.ep});
  return mesh;
}

std::string mesh_warning(const Compiled& compiled) {
  const Mesh& mesh = compiled.plan.mesh;
  if (compiled.plan.backend == "cuda" && compiled.spec.experts.count > 0) {
    return "the kernels of experts, and of latent and chunked attention, have not been run on GPUs "
           "yet; those of attention are much slower than predicted";
  }
  const int64_t host = ranks_on_host(compiled.device, mesh.ranks());
  for (const MeshAxis& axis : mesh.axes) {
    const bool tensor = axis.name == names::kTensorAxis;
    if (!tensor && axis.name != names::kContextAxis) continue;
    const std::string kind = tensor ? "tensor" : "context";
    if (!on_one_host(mesh, axis.name, compiled.device)) {
      return cat(kind, " parallelism over ", axis.size, " ranks crosses hosts of ", host,
                 " ranks, and its traffic is waited for in every layer; use parallelism.", kind,
                 "_parallel_degree = ", host, " or less");
    }
    if (!tensor && compiled.plan.backend == "cuda") {
      return "context parallelism has not been run on GPUs yet, and its attention kernel there is "
             "much slower than predicted";
    }
  }
  return "";
}

Compiled compile(const Config& config, const CompileOptions& options) {
  const ModelSpec spec = resolve_model(config.model, options.data_vocab);
  return compile_target(config, {spec, options.ranks, options.keep_values});
}

Compiled compile(const Config& config, const ModelSpec& spec, int64_t ranks) {
  return compile_target(config, {spec, ranks});
}

PlanSummary summarize(const Compiled& compiled) {
  PlanSummary summary = summarize(compiled.plan);
  summary.replanning = compiled.replanning;
  return summary;
}

Compiled compile_forward(const Config& config, const ModelSpec& spec, const BuildOptions& build) {
  Compiled compiled;
  compiled.spec = spec;
  compiled.device = device_spec_of(config);
  BuiltModel model = build_model(spec, build);
  compiled.params = model.params;
  compiled.reports = run_passes(model.graph, pipeline(), config, compiled.device,
                                run_options(config, Goal::Evaluate, {}, "forward"));
  compiled.plan = make_plan({{ProgramKind::Eval, &model.graph}}, config, compiled);
  add_choices(config, compiled);
  return compiled;
}

int64_t memory_limit(const Compiled& compiled) {
  const int64_t memory = compiled.device.memory_bytes;
  if (memory > 0) return memory;
  return memory_of_rank(compiled.device, host_memory_bytes(), compiled.plan.mesh.ranks());
}

}  // namespace weft
