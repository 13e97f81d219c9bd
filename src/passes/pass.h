// A pass is a plain function over the graph, exported as one constant object of its name. One
// runner serves them all: it checks the facts a pass needs, times it, compares "changed" with the
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

// What holds of a graph from some pass on; the runner checks it after every later pass.
// Differentiated: each parameter has a gradient; Updated: each parameter is overwritten exactly
// once (both for a training step only). Placed: every value lies on the mesh as the sharding rule
// of its op says for the operands, those of fused and joined ops left out. Sharded: a partial sum
// goes nowhere but through linear ops into a reduction.
enum class Fact { Differentiated, Updated, Placed, Sharded };

std::string_view fact_name(Fact fact);  // "differentiated", "updated", "placed", "sharded"

// What the graph is for: passes that only concern training have nothing to do otherwise.
enum class Goal { Train, Evaluate };

// Names of parameters that share a bucket, bucket by bucket.
using Buckets = std::vector<std::vector<std::string>>;

// Everything a pass may know. All of it is printable, none of it depends on who compiles.
struct PassContext {
  const Config& config;
  const DeviceSpec& device;
  Mesh mesh = {};  // the ranks to compile for; no axes: one process
  Goal goal = Goal::Train;
  Buckets buckets = {};   // of another graph over the same storage; empty: the pass chooses
  std::string note = {};  // one line for the report: what was done, or why there was nothing to do
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
    recompute, bucket, overlap, fuse;

// The buckets of a graph: with them as an option, a second graph reads the storage of the first.
Buckets buckets_of(const Graph& graph);

std::span<const Pass* const> all_passes();
const Pass* find_pass(std::string_view name);

// Throws UserError for a name that no pass has; the message starts with `subject`, where it stands.
void check_pass_names(const std::vector<std::string>& names, const std::string& subject);

// The list for a training step (pipeline.cpp); evaluation and generation use the same list: a pass
// with nothing to do returns false and says why.
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
  Mesh mesh = {};        // no axes: that of the graph
  Buckets buckets = {};  // those of a graph that this one shares its storage with
  // Called with "12-fuse" and the graph before and after each pass; empty: no dumps.
  std::function<void(const std::string& name, const Graph&, bool after)> dump = {};
};

// Runs the passes in order, but for those of compile.disable_passes. A graph that already has
// backward or optimizer nodes counts as differentiated or updated. Throws UserError for one left
// out that is unknown or needed and for a pass whose needs are not met, InternalError "after pass
// X: ..." when the verifier objects or a pass lies about `changed`.
std::vector<PassReport> run_passes(Graph& graph, std::span<const Pass* const> passes,
                                   const Config& config, const DeviceSpec& device,
                                   const RunOptions& options = {});

// The report as text, a line per pass: "12 fuse  3.1 ms  nodes 412 -> 388  note".
std::string to_string(const std::vector<PassReport>& reports);

}  // namespace weft
