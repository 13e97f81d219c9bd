// The GPU's progress as the host sees it while it waits: each collective notes in host memory that
// it has started and that it has finished, also in a replayed graph.
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

  // Names the next collective on the channel, for messages.
  void set_label(int64_t channel, std::string_view label);
  // Queued around a collective.
  void begin(int64_t channel, cudaStream_t stream);
  void end(int64_t channel, cudaStream_t stream);

  // What a channel is executing ("" for nothing), and whether that changed since the last look.
  struct Look {
    std::string_view label;
    bool changed = false;
  };
  Look look(int64_t channel);

 private:
  int64_t number(int64_t channel);

  std::mutex mutex_;  // labels also come from threads of long host work
  std::array<std::string, kChannels> next_;
  std::map<std::string, int64_t, std::less<>> numbers_;  // by label, starting at 1
  std::vector<std::string_view> labels_;                 // by number - 1
  int64_t* begun_ = nullptr;  // pinned, by channel: 2 x the number, + 1 once it has finished
  std::array<int64_t, kChannels> seen_ = {};
};

}  // namespace weft::nccl
