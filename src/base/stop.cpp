// The handlers use only lock-free atomics and calls that are safe in a signal handler.
#include "base/stop.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <string_view>
#include <tuple>

#include "base/partial_files.h"

namespace weft {

namespace {

constexpr int64_t kSameRequestNs = 50'000'000;

StopRequest g_request;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void end_with(ExitCode code) {
  remove_partial_files();
  ::_exit(static_cast<int>(code));
}

void end_now(int) {
  end_with(ExitCode::Interrupted);
}

void end_at_first(int signal) {
  end_with(stop_code(signal));
}

void on_signal(int signal) {
  const int error = errno;
  const StopAction action = g_request.take(signal);
  if (action == StopAction::EndNow) end_now(signal);
  if (action == StopAction::Stop) announce_stop(signal);
  errno = error;
}

void on_signal_as_rank(int signal) {
  g_request.take(signal);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

void catch_all(void (*handler)(int)) {
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, handler);
  if (hangup.sa_handler != SIG_IGN) handle(SIGHUP, handler);
}

}  // namespace

StopAction StopRequest::take(int signal) {
  const int64_t now = now_ns();
  int none = 0;
  if (signal_.compare_exchange_strong(none, signal)) {
    since_ = now;
    return StopAction::Stop;
  }
  const bool again = now - since_ > kSameRequestNs;
  return signal == SIGINT && again ? StopAction::EndNow : StopAction::None;
}

const StopRequest& stop_request() {
  return g_request;
}

void catch_stop_signals() {
  catch_all(on_signal);
}

void catch_stop_signals_as_rank() {
  catch_all(on_signal_as_rank);
  handle(kEndNowSignal, end_now);
}

BlockStopSignals::BlockStopSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, kEndNowSignal}) sigaddset(&held, signal);
  ::pthread_sigmask(SIG_BLOCK, &held, &before_);
}

BlockStopSignals::~BlockStopSignals() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void end_on_stop_signals() {
  catch_all(end_at_first);
}

void announce_stop(int signal) {
  constexpr std::string_view kInterrupt =
      "\nstopping after this step; Ctrl-C again ends at once, without saving\n";
  constexpr std::string_view kOther = "\nstopping after this step\n";
  std::string_view text = signal == SIGINT ? kInterrupt : kOther;
  // On a terminal a live progress line may still be open; elsewhere every line is complete.
  if (::isatty(STDOUT_FILENO) == 0) text.remove_prefix(1);
  std::ignore = ::write(STDOUT_FILENO, text.data(), text.size());
}

ExitCode stop_code(int signal) {
  return signal == SIGINT ? ExitCode::Interrupted : ExitCode::Preempted;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? cat("signal ", signal) : cat("SIG", name);
}

}  // namespace weft
