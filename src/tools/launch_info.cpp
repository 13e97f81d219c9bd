#include "tools/launch_info.h"

#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tools/commands.h"

namespace weft {
namespace {

// The variables in which a launcher says what it has started.
struct Launcher {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;
  std::vector<const char*> job;  // together they name the job; those that are not set are left out
  // Set: local_ranks lists the ranks of every host, and this is the host's index in the list.
  const char* host = nullptr;
};

// A launcher that may run inside another comes first. The batch script of a Slurm job has
// SLURM_PROCID too, so that only the variables of a step tell that srun started this process.
const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = {
      {.name = "mpirun",
       .rank = "OMPI_COMM_WORLD_RANK",
       .ranks = "OMPI_COMM_WORLD_SIZE",
       .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
       .local_ranks = "OMPI_COMM_WORLD_LOCAL_SIZE",
       .job = {"PMIX_NAMESPACE"}},
      {.name = "torchrun",
       .rank = "RANK",
       .ranks = "WORLD_SIZE",
       .local_rank = "LOCAL_RANK",
       .local_ranks = "LOCAL_WORLD_SIZE",
       .job = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
      {.name = "srun",
       .rank = "SLURM_PROCID",
       .ranks = "SLURM_STEP_NUM_TASKS",
       .local_rank = "SLURM_LOCALID",
       .local_ranks = "SLURM_STEP_TASKS_PER_NODE",
       .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
       .host = "SLURM_NODEID"},
  };
  return all;
}

struct Bounds {
  int64_t least;
  int64_t most;
};

int64_t checked(const char* name, std::string_view text, const Bounds& bounds) {
  const std::optional<int64_t> value = parse_int(text);
  USER_CHECK(value && *value >= bounds.least && *value <= bounds.most, "environment: ", name, "=",
             text, ", expected a whole number from ", bounds.least, " to ", bounds.most);
  return *value;
}

class Reader {
 public:
  Reader(const Environment& environment, const Launcher& launcher)
      : environment_(environment), launcher_(launcher) {}

  std::string_view text(const char* name) const {
    const char* value = environment_(name);
    USER_CHECK(value != nullptr, "environment: ", launcher_.ranks, " is set and ", name,
               " is not, expected both, as ", launcher_.name, " sets them; set it or unset ",
               launcher_.ranks);
    return value;
  }

  int64_t number(const char* name, const Bounds& bounds) const {
    return checked(name, text(name), bounds);
  }

  // Slurm lists the ranks of its hosts with repeats, as "4(x2),3".
  int64_t local_ranks(int64_t ranks) const {
    const char* name = launcher_.local_ranks;
    if (launcher_.host == nullptr) return number(name, {1, ranks});
    int64_t host = number(launcher_.host, {0, ranks - 1});
    for (const std::string& entry : split(text(name), ',')) {
      const size_t repeat = entry.find("(x");
      int64_t hosts = 1;
      if (repeat != std::string::npos) {
        const size_t begin = repeat + 2;
        hosts = checked(name, entry.substr(begin, entry.find(')') - begin), {1, ranks});
      }
      if (host < hosts) return checked(name, entry.substr(0, repeat), {1, ranks});
      host -= hosts;
    }
    throw UserError(ExitCode::Config,
                    cat("environment: ", name, "=", text(name), " with ", launcher_.host, "=",
                        text(launcher_.host), ", expected the tasks of every node"));
  }

  std::string job() const {
    std::string name = launcher_.name;
    for (const char* variable : launcher_.job) {
      if (const char* value = environment_(variable)) name += cat(" ", value);
    }
    return name;
  }

 private:
  const Environment& environment_;
  const Launcher& launcher_;
};

}  // namespace

std::optional<LaunchInfo> read_launch_info(const Environment& environment) {
  for (const Launcher& launcher : launchers()) {
    if (environment(launcher.ranks) == nullptr) continue;
    const Reader reader(environment, launcher);
    LaunchInfo info;
    info.launcher = launcher.name;
    info.ranks = reader.number(launcher.ranks, {1, kMaxRanks});
    if (info.ranks == 1) return std::nullopt;
    info.rank = reader.number(launcher.rank, {0, info.ranks - 1});
    info.local_ranks = reader.local_ranks(info.ranks);
    info.local_rank = reader.number(launcher.local_rank, {0, info.local_ranks - 1});
    info.job = reader.job();
    return info;
  }
  return std::nullopt;
}

std::optional<LaunchInfo> read_launch_info() {
  return read_launch_info([](const char* name) { return std::getenv(name); });
}

}  // namespace weft
