#include "runtime/comm/control.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "runtime/comm/futex.h"

namespace weft {
namespace {

constexpr int64_t kJobBytes = (static_cast<int64_t>(sizeof(JobRecord)) + 63) / 64 * 64;

template <size_t Size>
void copy_text(std::string_view text, char (&to)[Size]) {
  const size_t length = std::min(text.size(), Size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

std::string progress_text(const ProgressRecord& report_progress) {
  char text[ProgressRecord::kWords * 8 + 1] = {};
  const auto& words =
      report_progress.texts[report_progress.current.load(std::memory_order_acquire) & 1];
  for (int64_t i = 0; i < ProgressRecord::kWords; ++i) {
    const uint64_t word = words[i].load(std::memory_order_relaxed);
    std::memcpy(text + i * 8, &word, 8);
  }
  return text;
}

}  // namespace

int64_t Control::bytes(int64_t ranks) {
  return kJobBytes + ranks * static_cast<int64_t>(sizeof(RankRecord));
}

Control Control::view(void* memory) {
  Control control;
  control.job_ = static_cast<JobRecord*>(memory);
  control.ranks_ = reinterpret_cast<RankRecord*>(static_cast<char*>(memory) + kJobBytes);
  return control;
}

Control Control::start(void* memory, int64_t ranks) {
  Control control = view(memory);
  control.job_->ranks = ranks;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (WaitRecord& wait : control.at(rank).waits) wait.peer = -1;
    control.at(rank).step = -1;
  }
  return control;
}

uint32_t Control::arrive(int64_t rank, const BarrierId& place, uint64_t tag,
                         std::span<const char> payload) const {
  Cell& own = cell(rank, place);
  const uint32_t number = own.arrived.load(std::memory_order_relaxed) + 1;
  own.tags[number & 1] = tag;
  if (!payload.empty()) std::memcpy(own.payloads[number & 1], payload.data(), payload.size());
  // Sequentially consistent with the sleeper count, so that at least one side sees the other.
  own.arrived.store(number);
  if (own.sleepers.load() != 0) futex_wake_all(own.arrived);
  return number;
}

void Control::abort(int64_t rank, std::string_view reason, ExitCode code) const {
  uint32_t going_on = 0;
  if (!job_->abort_state.compare_exchange_strong(going_on, 1)) return;
  job_->abort_rank = static_cast<int32_t>(rank);
  job_->abort_code = static_cast<int32_t>(code);
  copy_text(reason, job_->abort_reason);
  job_->abort_state = 2;
  for (int64_t i = 0; i < ranks(); ++i) {
    for (auto& channels : at(i).cells) {
      for (Cell& each : channels) {
        if (each.sleepers.load() != 0) futex_wake_all(each.arrived);
      }
    }
  }
}

void Control::check_alive() const {
  if (aborted()) throw DeviceError(abort_reason(), abort_code());
}

void Control::set_state(int64_t rank, RankState state) const {
  at(rank).sign_of_life = monotonic_ns();
  at(rank).state = static_cast<uint32_t>(state);
  for (auto& channels : at(rank).cells) {
    for (Cell& each : channels) {
      if (each.sleepers.load() != 0) futex_wake_all(each.arrived);
    }
  }
}

void Control::set_failed(int64_t rank, std::string_view error, ExitCode code) const {
  copy_text(error, at(rank).error);
  at(rank).exit_code = static_cast<int32_t>(code);
  set_state(rank, RankState::Failed);
}

void Control::report_progress(int64_t rank, int64_t channel, std::string_view where) const {
  RankRecord& own = at(rank);
  own.sign_of_life.store(monotonic_ns(), std::memory_order_relaxed);
  ProgressRecord& record = own.progress[channel];
  record.busy.store(!where.empty(), std::memory_order_relaxed);
  if (where.empty()) return;
  const uint32_t next = record.current.load(std::memory_order_relaxed) + 1;
  char text[ProgressRecord::kWords * 8] = {};
  std::memcpy(text, where.data(), std::min(where.size(), sizeof text));
  for (int64_t i = 0; i < ProgressRecord::kWords; ++i) {
    uint64_t word;
    std::memcpy(&word, text + i * 8, 8);
    record.texts[next & 1][i].store(word, std::memory_order_relaxed);
  }
  record.current.store(next, std::memory_order_release);
}

std::string Control::whereabouts(int64_t rank) const {
  const RankRecord& record = at(rank);
  std::vector<std::string> busy;
  std::string last;
  for (const ProgressRecord& report_progress : record.progress) {
    const std::string text = progress_text(report_progress);
    if (text.empty()) continue;
    if (report_progress.busy.load()) busy.push_back(text);
    if (last.empty()) last = text;
  }
  const int64_t step = record.step.load();
  std::string where = step >= 0 ? cat("at training step ", step) : "before the first training step";
  if (!busy.empty()) return cat(where, ", in ", join(busy, " and "));
  return last.empty() ? where : cat(where, ", after ", last);
}

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace weft
