// What a run prints while it works: complete lines on standard output, and progress as one live
// line on a terminal or as a line every 10 % elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Prints one line and flushes, so that a log file is always up to date.
void log_line(std::string_view text);

struct ProgressOptions {
  std::FILE* stream = stdout;
  std::optional<bool> live;  // unset: live if the stream is a terminal
};

// Progress of one long task with a known amount of work.
class ProgressBar {
 public:
  ProgressBar(std::string title, int64_t total, ProgressOptions options = {});
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Ends a live line that is still open, so that an error message starts on a new line.
  ~ProgressBar();

  // Reports the work done so far; cheap enough to call often.
  void update(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  void draw_live(int percent);

  std::string title_;
  int64_t total_;
  std::FILE* stream_;
  bool live_;
  bool line_open_ = false;
  int shown_percent_ = -1;
  Clock::time_point start_ = Clock::now();
};

}  // namespace weft
