// Progress and log lines.
#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace weft {

namespace {

void print(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace

void log_line(std::string_view text) {
  print(stdout, cat(text, "\n"));
}

ProgressBar::ProgressBar(std::string title, int64_t total, ProgressOptions options)
    : title_(std::move(title)),
      total_(total),
      stream_(options.stream),
      live_(options.live.value_or(::isatty(::fileno(options.stream)) == 1)) {}

ProgressBar::~ProgressBar() {
  if (line_open_) print(stream_, "\n");
}

void ProgressBar::update(int64_t done) {
  const double part = total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 1.0;
  const int percent = static_cast<int>(100.0 * std::clamp(part, 0.0, 1.0));
  const int unit = live_ ? 1 : 10;
  if (shown_percent_ >= 0 ? percent / unit == shown_percent_ / unit : !live_ && percent < unit) {
    return;
  }
  shown_percent_ = percent;
  if (live_) {
    draw_live(percent);
  } else {
    print(stream_, cat(title_, ": ", percent, "%\n"));
  }
}

void ProgressBar::draw_live(int percent) {
  constexpr int kWidth = 30;
  const int filled = percent * kWidth / 100;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const std::string rest =
      percent < 100
          ? cat(human_duration(percent > 0 ? seconds * (100 - percent) / percent : -1.0), " left")
          : human_duration(seconds);
  print(stream_, cat("\r\x1b[K", title_, " [", std::string(filled, '#'),
                     std::string(kWidth - filled, '.'), "] ", percent, "% ", rest));
  line_open_ = percent < 100;
  if (percent == 100) print(stream_, "\n");
}

}  // namespace weft
