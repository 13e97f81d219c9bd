// Ranks as processes of one host. A job's memory is anonymous files. Forked ranks inherit their
// descriptors; ranks of another launcher receive them (runtime/comm/join.h). Nothing has a name, so
// everything is freed with the last process, however it ends.
#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/control.h"

namespace weft {

// The files of a job.
struct ShmFiles {
  Descriptor control;
  std::vector<Descriptor> arenas;  // by rank
};

class ShmJob {
 public:
  // Starts a job. Throws DeviceError when the system is out of memory.
  explicit ShmJob(int64_t ranks);
  // The job of these files, which another process has started. `life` is a pipe or socket that
  // closes with that process.
  ShmJob(ShmFiles files, Descriptor life);
  ~ShmJob();
  ShmJob(const ShmJob&) = delete;
  ShmJob& operator=(const ShmJob&) = delete;

  int64_t ranks() const { return control_.ranks(); }
  const Control& control() const { return control_; }

  const ShmFiles& files() const { return files_; }

  // In a forked rank: closes the launcher's end of the pipe, so that the launcher's death is
  // visible.
  void become_rank();
  // Whether the process that started the job still holds its end.
  bool launcher_alive() const;
  // Why the rank cannot go on without that process; "" while it is alive.
  std::string launcher_loss() const;

  // Creates the communicator of one rank; the job outlives it.
  std::unique_ptr<Communicator> connect(RankInfo info, const CommOptions& options = {});

  // The anonymous file of a rank's arena.
  int arena(int64_t rank) const { return files_.arenas[static_cast<size_t>(rank)].get(); }

 private:
  void map_control(int64_t ranks);

  ShmFiles files_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
  Control control_;
  bool first_rank_leads_ = false;      // rank 0 started the job, rather than a launcher
  Descriptor life_read_, life_write_;  // only the process that started the job keeps the write end
};

}  // namespace weft
