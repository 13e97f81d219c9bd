#include "runtime/comm/nccl/progress.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/comm/nccl/arithmetic.h"
#include "runtime/cuda/device/check.h"

namespace weft::nccl {

Progress::~Progress() {
  if (begun_ != nullptr) cudaFreeHost(begun_);
}

void Progress::set_label(int64_t channel, std::string_view label) {
  const std::lock_guard lock(mutex_);
  if (!label.empty()) next_.at(static_cast<size_t>(channel)) = label;
}

int64_t Progress::number(int64_t channel) {
  const std::lock_guard lock(mutex_);
  const std::string& label = next_.at(static_cast<size_t>(channel));
  const auto [entry, added] = numbers_.try_emplace(label, static_cast<int64_t>(labels_.size()) + 1);
  if (added) labels_.push_back(entry->first);
  return entry->second;
}

void Progress::begin(int64_t channel, cudaStream_t stream) {
  if (begun_ == nullptr) {
    void* memory = nullptr;
    CUDA_CHECK(cudaHostAlloc(&memory, kChannels * sizeof(int64_t), cudaHostAllocMapped));
    begun_ = static_cast<int64_t*>(memory);
    std::fill_n(begun_, kChannels, 0);
  }
  note(begun_ + channel, 2 * number(channel), stream);
}

void Progress::end(int64_t channel, cudaStream_t stream) {
  note(begun_ + channel, 2 * number(channel) + 1, stream);
}

Progress::Look Progress::look(int64_t channel) {
  if (begun_ == nullptr) return {};
  const int64_t value = std::atomic_ref(begun_[channel]).load(std::memory_order_relaxed);
  const bool inside = value > 0 && value % 2 == 0;
  Look look;
  if (inside) look.label = labels_.at(static_cast<size_t>(value / 2 - 1));
  look.changed = std::exchange(seen_.at(static_cast<size_t>(channel)), value) != value;
  return look;
}

}  // namespace weft::nccl
