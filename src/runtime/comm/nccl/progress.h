// How far the GPU has come, as the host can see it while it waits: each collective leaves in memory
// of the host that it has begun and that it has ended, in a replayed graph too.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/control.h"

namespace weft::nccl {

class Progress {
 public:
  Progress() = default;
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What the next collective on the channel is, for messages.
  void set_label(int64_t channel, std::string_view label);
  // Queued around a collective.
  void begin(int64_t channel, cudaStream_t stream);
  void end(int64_t channel, cudaStream_t stream);

  // What a channel is in, "" for nothing, and whether that changed since it was last asked for.
  struct Look {
    std::string_view label;
    bool changed = false;
  };
  Look look(int64_t channel);

 private:
  int64_t number(int64_t channel);

  std::mutex mutex_;  // labels come from the threads of long host work too
  std::array<std::string, kMaxChannels> next_;
  std::map<std::string, int64_t, std::less<>> numbers_;  // by label, from 1 on
  std::vector<std::string_view> labels_;                 // by number, less 1
  int64_t* begun_ = nullptr;  // pinned: by channel, twice the number; one more when it has ended
  std::array<int64_t, kMaxChannels> seen_ = {};
};

}  // namespace weft::nccl
