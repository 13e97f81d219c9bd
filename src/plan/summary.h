// The cost of a plan as data: steps, FLOPs, peak memory by kind and step, the largest buffers,
// predicted time, and communication volume per rank. The printed page is also committed as a
// golden, whose diff shows the cost of a change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/comm_volume.h"
#include "plan/plan.h"
#include "plan/timing.h"

namespace weft {

// Live bytes of a rank's arena by kind, at the step of `program` where their sum is largest.
struct Peak {
  std::array<int64_t, kBufferKinds> bytes{};
  int64_t total = 0;
  int64_t step = -1;
};
Peak peak_memory(const Plan& plan, ProgramKind program);

double program_flops(const Plan& plan, ProgramKind program);
// Bytes that the program's kernels read and write.
double program_traffic(const Plan& plan, ProgramKind program);

// Buffers of one name, or buckets of one name and size. Layer numbers in the name are replaced by
// "*".
struct NamedBytes {
  std::string name;
  int64_t bytes = 0;  // per bucket, or total of the buffers
  int64_t count = 0;
};

// Buffers of one name and kind.
struct BufferGroup : NamedBytes {
  BufferKind kind = BufferKind::Activation;
};

struct OpTime {
  std::string op;
  double seconds = 0;  // of all its steps
};

struct PhaseSteps {
  Phase phase = Phase::Forward;
  int64_t steps = 0;
};

struct ProgramSummary {
  ProgramKind kind = ProgramKind::Last;
  int64_t steps = 0;
  std::vector<PhaseSteps> phases;  // only those with steps
  int64_t recomputed = 0;          // steps
  double flops = 0;
  double traffic_bytes = 0;
  ProgramTime time;
  std::vector<OpTime> ops;  // longest first, without collectives
  std::vector<CollectiveVolume> collectives;
  int64_t packing_bytes = 0;
  Peak peak;
  std::string peak_label;  // of its step
};

// The dtype in which weights are read, if it differs from that of the update.
struct LowWeights {
  DType dtype = DType::BF16;
  int64_t kept_bytes = 0;  // between steps; 0: cast for every use
};

// What was changed because the first plan exceeded the memory of its device.
struct Replanning {
  int64_t times = 0;                      // that a new plan was taken; 0: nothing was changed
  int64_t reserved_bytes = 0;             // that passes left free for fragmentation
  std::optional<int64_t> asked_prefetch;  // compile.prefetch, if the plan has 0 instead
};
// "replanned 2 times: 1.2 GiB reserved for fragmentation".
std::string to_string(const Replanning& replanning);

struct PlanSummary {
  std::string name;
  std::string backend;
  Mesh mesh;
  int64_t params = 0;  // number of bindings of each kind
  int64_t states = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  std::vector<std::string> streams;
  int64_t events = 0;
  int64_t arena_bytes = 0;
  int64_t persistent_bytes = 0;
  std::vector<SharedSpace> shared;
  Replanning replanning;  // not known to the plan itself
  std::optional<LowWeights> low_weights;
  std::vector<NamedBytes> buckets;
  int64_t bucket_count = 0;
  std::vector<ProgramSummary> programs;
  std::vector<BufferGroup> largest;  // at the highest peak, largest first
};
PlanSummary summarize(const Plan& plan);

// A few aligned lines per program; long lists are truncated.
std::string to_string(const PlanSummary& summary);

// "950 us": seconds with three digits, in a suitable unit.
std::string short_time(double seconds);

}  // namespace weft
