// Output goes through unnamed files, so that neither side can block the other.
#include "support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File unnamed_file(const std::string& text = {}) {
  File file(std::tmpfile());
  if (!file) throw std::runtime_error("cannot make a temporary file");
  std::fwrite(text.data(), 1, text.size(), file.get());
  std::fflush(file.get());
  ::lseek(::fileno(file.get()), 0, SEEK_SET);
  return file;
}

std::string content(const File& file) {
  std::string text;
  char buffer[1 << 14];
  for (off_t at = 0;;) {
    const ssize_t got = ::pread(::fileno(file.get()), buffer, sizeof buffer, at);
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    at += got;
  }
}

void set_limit(__rlimit_resource resource, int64_t most) {
  if (most < 0) return;
  const rlimit limit{.rlim_cur = static_cast<rlim_t>(most), .rlim_max = static_cast<rlim_t>(most)};
  ::setrlimit(resource, &limit);
}

// Only calls that are safe between fork and exec.
[[noreturn]] void become(const std::vector<char*>& arguments, const ProcessOptions& options,
                         const int (&streams)[3]) {
  for (int i = 0; i < 3; ++i) ::dup2(streams[i], i);
  for (const int stream : options.closed) ::close(stream);
  if (options.own_group) ::setpgid(0, 0);
  ::signal(SIGHUP, SIG_DFL);  // the test may run under nohup
  set_limit(RLIMIT_FSIZE, options.file_size_limit);
  set_limit(RLIMIT_NOFILE, options.open_file_limit);
  if (options.folder.empty() || ::chdir(options.folder.c_str()) == 0) {
    ::execv(arguments[0], arguments.data());
  }
  ::_exit(127);
}

int output_descriptor(const ProcessOptions& options, const File& recorded) {
  if (!options.output_file.empty()) {
    return ::open(options.output_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  }
  if (!options.reader_gone) return ::dup(::fileno(recorded.get()));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
  ::close(ends[0]);
  return ends[1];
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments,
                          const ProcessOptions& options) {
  const File input = unnamed_file(options.input);
  const File output = unnamed_file();
  const File errors = unnamed_file();
  const int output_end = output_descriptor(options, output);
  const int streams[3] = {::fileno(input.get()), output_end, ::fileno(errors.get())};
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);

  const auto start = Clock::now();
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot start a process");
  if (child == 0) become(pointers, options, streams);
  ::close(output_end);

  ProcessResult result;
  int status = 0;
  rusage usage{};
  while (::wait4(child, &status, WNOHANG, &usage) == 0) {
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (result.seconds > options.timeout_seconds) {
      result.timed_out = true;
      ::kill(child, SIGKILL);
    }
    if (options.watch) options.watch(child, content(output), content(errors));
    ::usleep(1000);
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.output = content(output);
  result.errors = content(errors);
  result.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  return result;
}

}  // namespace weft
