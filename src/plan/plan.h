// The plan: everything the runtime needs for one training step, and nothing else. It has buffers at
// fixed offsets in the rank's arena or in shared memory, and programs of steps: `micro` (forward,
// backward, accumulate), `last` (micro, then clip and update) and `eval` (forward only). A plan is
// self-contained, and can be printed, parsed and hashed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/streams.h"
#include "graph/type.h"

namespace weft {

enum class BufferKind {
  Param,
  Copy,  // of parameters, in the compute dtype
  Gradient,
  Optimizer,
  Activation,
  Gathered,
  Input,
  Output,
  Workspace
};
inline constexpr int kBufferKinds = 9;
std::string_view buffer_kind_name(BufferKind kind);  // "param", "gradient", ...

// The replay programs are micro and last without a limit to the rows of experts.
enum class ProgramKind { Micro, Last, Eval, ReplayMicro, ReplayLast };
inline constexpr int kPrograms = 5;
std::string_view program_name(ProgramKind kind);  // "micro", "last", ..., "replay_last"

// Memory shared by the ranks along an axis on one host. It holds one copy of gathered weights:
// every rank writes its part, and all read the full weights.
struct SharedSpace {
  std::string axis;
  int64_t bytes = 0;
  bool operator==(const SharedSpace&) const = default;
};

// A range of the arena or of a shared space. Persistent buffers keep their contents between
// programs. The others live from step `first` to step `last` of one program; buffers that are never
// live at the same time may overlap.
struct Buffer {
  std::string name;
  BufferKind kind = BufferKind::Activation;
  int64_t bytes = 0;
  int64_t offset = -1;
  int64_t shared = -1;  // index of its shared space; -1: the arena
  bool persistent = false;
  ProgramKind program = ProgramKind::Last;  // transient only
  int64_t first = 0;                        // transient only
  int64_t last = 0;                         // transient only
};

// A buffer, or a part of one, viewed as a local tensor.
struct TensorRef {
  int64_t buffer = -1;
  DType dtype = DType::F32;
  Shape shape;         // local
  int64_t offset = 0;  // bytes from the start of the buffer
  bool operator==(const TensorRef&) const = default;
};

// One kernel launch on one stream. It waits for the events in `waits`, runs, and signals `signal`.
struct Step {
  std::string op;
  std::string kernel;
  std::vector<TensorRef> operands;
  std::vector<TensorRef> results;
  Attrs attrs;
  int64_t workspace = -1;  // buffer, or -1
  int64_t stream = 0;
  std::vector<int64_t> waits;
  int64_t signal = -1;
  std::string path;
  Phase phase = Phase::Forward;
  bool recomputed = false;
  double flops = 0;
  double seconds = 0;  // predicted from the DeviceSpec
};

// A parameter that a tensor stores, alone or with others in a flat one, where its offset follows
// from the members before it (member_offsets). S entries shard it over other axes than those of F.
struct FlatMember {
  std::string name;
  Shape shape;  // global
  Placement placement = {};
  bool operator==(const FlatMember&) const = default;
};

// A named tensor that the host reads or writes: an input, parameter, optimizer state or output. If
// it is sharded over a mesh axis, it is flat: each rank holds its shard of the concatenated
// members.
struct Binding {
  std::string name;
  TensorRef tensor;
  std::string axis = {};  // of F, may be a joint one; empty: not flat
  // The parameters in it; empty: a single one that is neither flat nor sharded.
  std::vector<FlatMember> members = {};
  std::optional<StateKey> state = {};  // of a state: whose it is, and in which role
};

struct Plan {
  std::string name;
  std::string backend;
  std::string tuning;  // hash of the tuned library algorithms; empty: library defaults
  bool tf32 = false;   // operands of f32 matmuls are rounded to TF32
  Mesh mesh;
  std::vector<std::string> streams;  // kStreamNames, or the first of them
  int64_t num_events = 0;
  int64_t arena_bytes = 0;
  int64_t persistent_bytes = 0;
  std::vector<SharedSpace> shared;  // one per host
  std::vector<Buffer> buffers;
  std::array<std::vector<Step>, kPrograms> programs;
  std::vector<Binding> inputs;   // written by the host before a program runs
  std::vector<Binding> params;   // persistent, trainable
  std::vector<Binding> states;   // persistent, not trainable: moments, counts, accumulators
  std::vector<Binding> outputs;  // read by the host after a program ran

  const std::vector<Step>& program(ProgramKind kind) const {
    return programs[static_cast<size_t>(kind)];
  }
};

// Where each member begins in the flat tensor that the ranks of its axis hold together.
std::vector<int64_t> member_offsets(const Binding& binding, const Mesh& mesh);

// The state of that owner in that role, or nullptr if the plan has none.
const Binding* find_state(const Plan& plan, const StateKey& key);

// Whether the step is a call of this op.
bool is_call(const Step& step, const OpDef& op);

// The operand or result of that name in the signature of the step's op; of a list, the first one.
const TensorRef& operand_of(const Step& step, std::string_view name);
const TensorRef& result_of(const Step& step, std::string_view name);

// Local types and attributes of a step, as its kernel's supports and workspace see them.
Call call_of(const Step& step);

// The ranks along one axis, as the collectives of one stream of the plan see them.
struct CollectiveGroup {
  std::string axis;
  int64_t stream = 0;
  bool operator==(const CollectiveGroup&) const = default;
};

// The groups that the programs use in collectives, in order of first use. The steps of a program
// fix the order of its collectives, the same on all ranks.
std::vector<CollectiveGroup> collective_groups(const Plan& plan);

// A rank's share of its host's memory: its arena, and its part of the shared spaces.
int64_t rank_bytes(const Plan& plan);

// Bytes of the tensor.
int64_t tensor_bytes(const TensorRef& ref);

// The name of a step in messages: "plan step 214 matmul (last: layers.12.attention bwd)".
std::string step_label(ProgramKind program, int64_t index, const Step& step);

}  // namespace weft
