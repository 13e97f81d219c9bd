// Ranks as processes of one host. A job is created before the processes are forked: its memory is
// anonymous files whose descriptors they inherit. Nothing has a name, so everything is freed with
// the last process, however it ends.
#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/control.h"

namespace weft {

class ShmJob {
 public:
  // Throws DeviceError when the system is out of memory.
  explicit ShmJob(int64_t ranks);
  ~ShmJob();
  ShmJob(const ShmJob&) = delete;
  ShmJob& operator=(const ShmJob&) = delete;

  int64_t ranks() const { return control_.ranks(); }
  const Control& control() const { return control_; }

  // In a forked rank: closes the launcher's end of the pipe, so that the launcher's death is
  // visible.
  void become_rank();
  // Whether the launcher still holds its end.
  bool launcher_alive() const;

  // Creates the communicator of one rank; the job outlives it.
  std::unique_ptr<Communicator> connect(RankInfo info, const CommOptions& options = {});

  // The anonymous file of a rank's arena.
  int arena(int64_t rank) const { return arenas_[static_cast<size_t>(rank)].get(); }

 private:
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
  Control control_;
  std::vector<Descriptor> arenas_;
  Descriptor life_read_, life_write_;  // only the launcher keeps the write end
};

}  // namespace weft
