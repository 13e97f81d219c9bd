// Step lines and the metrics file.
#include "train/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace weft {

namespace {

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "nan";  // its sign is meaningless
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

constexpr int64_t kMaxMetricsBytes = int64_t{4} << 30;

// The complete lines of steps 1 to `done`.
std::string lines_until(const std::string& text, int64_t done) {
  constexpr std::string_view kStart = "{\"step\":";
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    const std::string_view line(text.data() + at, end - at);
    const std::string_view number =
        line.starts_with(kStart) ? line.substr(kStart.size(), line.find(',') - kStart.size()) : "";
    if (parse_int(number).value_or(done + 1) <= done) kept.append(line).append("\n");
    at = end + 1;
  }
  return kept;
}

// A path as a JSON string; bytes that are not UTF-8 are replaced.
std::string json_text(const std::string& text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_number(double value) {
  return std::isfinite(value) ? format_double(value) : "null";
}

}  // namespace

std::string to_line(const StepMetrics& m) {
  char lr[32];
  std::snprintf(lr, sizeof lr, "%.3g", m.lr);
  const std::string scale = m.loss_scale ? cat("  scale ", format_double(*m.loss_scale)) : "";
  return cat("step ", m.step, "/", m.steps, "  loss ", fixed(m.loss, 4), "  grad norm ",
             fixed(m.grad_norm, 3), "  lr ", lr, "  ", human_count(m.tokens_per_second), " tok/s",
             m.mfu ? cat("  mfu ", fixed(*m.mfu * 100, 1), " %") : "", "  mem ",
             human_bytes(static_cast<double>(m.memory_bytes)), "  eta ",
             human_duration(m.eta_seconds), scale, m.skipped ? "  skipped: not finite" : "");
}

std::string to_json(const StepMetrics& m) {
  return cat("{\"step\":", m.step, ",\"loss\":", json_number(m.loss),
             ",\"grad_norm\":", json_number(m.grad_norm), ",\"lr\":", json_number(m.lr),
             ",\"seconds\":", json_number(m.seconds),
             ",\"tokens_per_second\":", json_number(m.tokens_per_second),
             ",\"mfu\":", m.mfu ? json_number(*m.mfu) : "null",
             ",\"memory_bytes\":", m.memory_bytes, ",\"skipped\":", m.skipped ? "true" : "false",
             m.loss_scale ? cat(",\"loss_scale\":", json_number(*m.loss_scale)) : "",
             m.experts ? cat(",\"experts\":", to_json(*m.experts)) : "", "}");
}

MetricsLog::MetricsLog(const std::string& path, int64_t log_freq, int64_t done)
    : path_(path), log_freq_(log_freq), first_step_(done + 1), live_(isatty(STDOUT_FILENO) == 1) {
  if (path_.empty()) return;
  std::string kept;
  if (done > 0 && path_exists(path_)) {
    kept = lines_until(read_text_file(path_, kMaxMetricsBytes), done);
    write_text_file(path_, kept);
    size_ = std::ssize(kept);
  }
  const int truncate = kept.empty() ? O_TRUNC : O_APPEND;
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | truncate | O_CLOEXEC, 0666);
  if (file_ < 0) {
    throw UserError(ExitCode::CannotWrite, cat(path_, ": cannot write: ", reason_of(errno)));
  }
}

MetricsLog::~MetricsLog() {
  if (line_open_) std::fputc('\n', stdout);
  if (file_ >= 0) ::close(file_);
}

void MetricsLog::step(const StepMetrics& metrics) {
  write(metrics.step, to_json(metrics));
  bool shown = metrics.step == first_step_ || metrics.step % log_freq_ == 0 ||
               metrics.step == metrics.steps || metrics.skipped;
  if (shown) {
    note(to_line(metrics));
  } else if (live_) {
    std::printf("\r%s\033[K", to_line(metrics).c_str());
    std::fflush(stdout);
    line_open_ = true;
  }
}

void MetricsLog::validation(int64_t step, double loss) {
  write(step, cat("{\"step\":", step, ",\"validation_loss\":", json_number(loss), "}"));
  note(cat("step ", step, "  validation loss ", fixed(loss, 4)));
}

void MetricsLog::checkpoint(const SaveOutcome& save, bool gives_up) {
  if (!save.error.empty()) {
    if (line_open_) std::fputc('\n', stdout);
    line_open_ = false;
    std::fprintf(stderr, "weft: step %lld: checkpoint not saved: %s%s\n",
                 static_cast<long long>(save.step), save.error.c_str(),
                 gives_up ? "" : "; training continues");
    return;
  }
  write(save.step,
        cat("{\"step\":", save.step, ",\"checkpoint\":", json_text(save.path), ",\"manifest\":\"",
            save.digest, "\",\"seconds\":", json_number(save.seconds),
            ",\"blocked_seconds\":", json_number(save.blocked_seconds), "}"));
  note(cat("step ", save.step, "  committed ", save.path, "  ",
           human_bytes(static_cast<double>(save.bytes)), " in ", fixed(save.seconds, 2), " s  ",
           save.digest));
  for (const int64_t step : save.removed) note(cat("step ", step, "  checkpoint removed"));
  if (save.kept.empty()) return;
  std::fprintf(
      stderr,
      "weft: step %lld: older checkpoints not removed: %s; remove them by weft checkpoint prune\n",
      static_cast<long long>(save.step), save.kept.c_str());
}

void MetricsLog::resumed(const ResumedFrom& from) {
  write(from.step, cat("{\"step\":", from.step, ",\"resumed_from\":", json_text(from.checkpoint),
                       ",\"manifest\":\"", from.digest, "\"}"));
  note(cat("resumed  from ", from.checkpoint, " after step ", from.step, ", loaded in ",
           fixed(from.seconds, 2), " s"));
}

// A failure is not reported: the next write will fail too.
void MetricsLog::sync() {
  if (file_ >= 0) std::ignore = ::fdatasync(file_);
}

void MetricsLog::note(const std::string& text) {
  if (line_open_) std::fputs("\r\033[K", stdout);
  line_open_ = false;
  log_line(text);
}

std::string MetricsLog::missing() const {
  if (failed_at_ > 0) {
    return cat(path_, ": incomplete, the metrics from step ", failed_at_, " on are missing");
  }
  struct stat status {};
  const bool removed = file_ >= 0 && ::fstat(file_, &status) == 0 && status.st_nlink == 0;
  return removed ? cat(path_, ": removed during the run, its metrics are lost") : "";
}

// Training continues even if its metrics cannot be written.
void MetricsLog::write(int64_t step, const std::string& line) {
  if (file_ < 0 || failed_at_ > 0) return;
  const std::string text = line + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const int error = wrote < 0 ? errno : ENOSPC;
      // Readers see only complete lines; if this fails too, there is nothing better to do.
      std::ignore = ::ftruncate(file_, size_);
      failed_at_ = step;
      if (line_open_) std::fputc('\n', stdout);
      line_open_ = false;
      std::fprintf(stderr, "weft: %s: cannot write: %s; training continues without it\n",
                   path_.c_str(), reason_of(error).c_str());
      return;
    }
    done += static_cast<size_t>(wrote);
  }
  size_ += static_cast<int64_t>(text.size());
}

}  // namespace weft
