// A pass is a plain function over the graph, exported as one constant object of the same name. One
// runner runs them all: it checks the facts a pass needs, times it, compares "changed" with the
// graph hash, verifies, dumps and reports.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/device_spec.h"
#include "graph/graph.h"

namespace weft {

// A property that a pass establishes; the runner checks it after every later pass. Differentiated:
// each parameter has a gradient. Updated: each parameter is overwritten exactly once. (Both hold
// for training only.) Placed: the placement of every value follows from its op's sharding rule,
// except for results of fused ops. Sharded: a partial sum only passes through linear ops into a
// reduction.
enum class Fact { Differentiated, Updated, Placed, Sharded };

std::string_view fact_name(Fact fact);  // "differentiated", "updated", "placed", "sharded"

// What the graph is for. Training-only passes have nothing to do for evaluation.
enum class Goal { Train, Evaluate };

// Names of parameters that share a bucket, bucket by bucket.
using Buckets = std::vector<std::vector<std::string>>;

// Everything a pass may know. All of it is printable; none of it depends on the compiling machine.
struct PassContext {
  const Config& config;
  const DeviceSpec& device;
  Mesh mesh = {};  // the target ranks; no axes: one process
  Goal goal = Goal::Train;
  Buckets buckets = {};   // of another graph with the same storage; empty: the pass chooses
  std::string note = {};  // one line for the report: what was done, or why nothing was
};

struct Pass {
  std::string_view name;  // == object == file == golden folder == config key == dump file
  std::string_view doc;   // one or two sentences; docs/passes.md is generated from it
  std::span<const Fact> needs;
  std::span<const Fact> gives;
  bool (*run)(Graph&, PassContext&) = nullptr;  // true if it changed the graph
};

// Passes in the order of docs/passes.md.
extern const Pass mixed_precision, autodiff, loss_chunks, optimizer, simplify, place, shard_params,
    recompute, bucket, async_tp, overlap, fuse;

// The buckets of a graph. Passed as an option, they let a second graph use the storage of the
// first.
Buckets buckets_of(const Graph& graph);

std::span<const Pass* const> all_passes();
const Pass* find_pass(std::string_view name);

// Throws UserError for an unknown pass name; the message starts with `subject`, which says where
// the name was given.
void check_pass_names(const std::vector<std::string>& names, const std::string& subject);

// The passes for a training step (pipeline.cpp). Evaluation and generation use the same list: a
// pass with nothing to do returns false and says why.
std::span<const Pass* const> pipeline();

// One line of the report.
struct PassReport {
  std::string pass;
  bool disabled = false;
  bool changed = false;
  double milliseconds = 0;
  size_t nodes_before = 0;
  size_t nodes_after = 0;
  std::string note = {};
};

struct RunOptions {
  Goal goal = Goal::Train;
  Mesh mesh = {};        // no axes: the mesh of the graph
  Buckets buckets = {};  // of a graph with which this one shares its storage
  // Called with "12-fuse" and the graph before and after each pass; empty: no dumps.
  std::function<void(const std::string& name, const Graph&, bool after)> dump = {};
};

// Runs the passes in order, except those in compile.disable_passes. A graph that already has
// backward or optimizer nodes counts as differentiated or updated. Throws UserError if a disabled
// pass is unknown or required, or if the needs of a pass are not met; InternalError "after pass X:
// ..." if verification fails or a pass reports `changed` wrongly.
std::vector<PassReport> run_passes(Graph& graph, std::span<const Pass* const> passes,
                                   const Config& config, const DeviceSpec& device,
                                   const RunOptions& options = {});

// The report as text, one line per pass: "12 fuse  3.1 ms  nodes 412 -> 388  note".
std::string to_string(const std::vector<PassReport>& reports);

}  // namespace weft
