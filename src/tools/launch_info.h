// A rank's place in a job that another launcher has started: mpirun, torchrun or srun. They say it
// in environment variables, which are read here and nowhere else (docs/decisions/035).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace weft {

struct LaunchInfo {
  std::string launcher;  // "mpirun"
  std::string job;       // differs between the jobs of a host
  int64_t rank = 0;
  int64_t ranks = 1;
  int64_t local_rank = 0;  // among the ranks of this host
  int64_t local_ranks = 1;
};

// The value of an environment variable; nullptr: not set.
using Environment = std::function<const char*(const char* name)>;

// What the innermost launcher says; nullopt when there is none or it starts a single rank. Throws
// UserError when its variables contradict each other.
std::optional<LaunchInfo> read_launch_info(const Environment& environment);

// The same from the variables of this process.
std::optional<LaunchInfo> read_launch_info();

}  // namespace weft
