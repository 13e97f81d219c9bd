// Collectives for ranks that can read each other's memory: one implementation for threads and for
// processes on one host. Every rank has the same blocks, so an offset in this rank's block is valid
// in a peer's. Each collective has a barrier before and after reading.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/control.h"
#include "runtime/comm/watchdog.h"

namespace weft {

class PeerMemory : public Communicator {
 public:
  PeerMemory(const Control& control, RankInfo info, const CommOptions& options);
  // Marks the rank as finished: peers that still wait for it fail.
  ~PeerMemory() override;

  const RankInfo& info() const override { return info_; }
  void* allocate(int64_t bytes, Device& device) override;
  void* allocate_shared(std::string_view axis, int64_t bytes, Device& device) override;
  void release(void* memory, Device& device) override;
  void all_gather(const CollectiveSite& site, const Tensor& shard,
                  std::span<const Tensor> members) override;
  void reduce_scatter(const CollectiveSite& site, std::span<const Tensor> members,
                      const Tensor& shard) override;
  void all_reduce(const CollectiveSite& site, std::span<const Tensor> tensors) override;
  void all_gather_dim(const CollectiveSite& site, const Tensor& shard, const Tensor& full,
                      int64_t dim) override;
  void reduce_scatter_dim(const CollectiveSite& site, const Tensor& full, const Tensor& shard,
                          int64_t dim) override;
  void transfer(const CollectiveSite& site, std::span<const MovedTensor> tensors) override;
  void barrier() override;
  void exchange(std::span<const char> own, std::span<char> all) override;
  void start_step(int64_t step) override;
  void report_progress(int64_t channel, std::string_view where) override;
  void watch(const DeviceLook& look) override;
  std::optional<std::string> poll_error() const override;
  void abort(std::string_view reason) override;

 protected:
  // Memory that peers read: `bases` holds this rank's mapping of each rank's block, by rank.
  struct Block {
    int64_t bytes = 0;
    std::vector<char*> bases;
    int64_t leader = -1;           // of a shared block: the rank that owns its memory
    std::shared_ptr<void> shared;  // keeps a shared block of threads alive
  };

  const Control& control() const { return control_; }
  // Polled while waiting; a text ends the job and says why.
  virtual std::string launcher_loss() { return ""; }
  // Creates this rank's block, makes it visible to the peers, and fills in their bases.
  virtual void open_block(Block& block, Device& device) = 0;
  // Like open_block, but every base is the leader's memory.
  virtual void open_shared(Block& block) = 0;
  virtual void close_block(Block& block, Device& device) = 0;

 private:
  // The ranks along an axis, plain or joint, or all ranks.
  struct Group {
    int64_t axis = kWorldAxis;  // the set of axes
    std::vector<int64_t> ranks;
    size_t own = 0;
  };
  class Barrier;

  const Group& group(std::string_view axis) const;
  // The same offset in the block of each rank of the group.
  std::vector<const void*> peers(const Group& group, const void* own) const;
  const void* peer(int64_t rank, const void* own) const;
  bool is_shared(const void* data) const;
  void* keep(Block block);
  void all_reduce_inline(Barrier& barrier, std::span<const Tensor> tensors);
  void all_reduce_shared(Barrier& barrier, std::span<const Tensor> tensors);
  // Delays the collective by the time the artificial link needs for these bytes.
  void delay(int64_t bytes);

  Control control_;
  RankInfo info_;
  CommOptions options_;
  WaitOptions wait_;
  DeviceWait device_wait_;
  std::vector<Group> groups_;  // one per set of axes, then the world
  mutable std::mutex mutex_;   // guards the two below
  std::vector<Block> blocks_;
  int64_t link_free_ = 0;  // when the artificial link has finished its queued transfers
};

}  // namespace weft
