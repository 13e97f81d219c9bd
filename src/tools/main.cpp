// The weft command: runs the selected subcommand and turns every failure into one sentence on
// standard error and an exit code.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "runtime/device.h"
#include "tools/commands.h"

namespace weft {

void check_backend_option(const std::string& name) {
  find_computing_backend(name, cat("command line: --backend ", name));
}

namespace {

int fail(const Failure& failure) {
  std::fprintf(stderr, "weft: %s\n", failure.message.c_str());
  return static_cast<int>(failure.code);
}

// If descriptors 0 to 2 are closed, the next file or shared memory block would get their numbers,
// and printed text would go into it. Ranks are forked later and inherit these descriptors.
void open_closed_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0) std::ignore = ::open("/dev/null", O_RDWR);
  }
}

// A file size limit or a closed pipe then shows up as a failed write, which is reported.
void ignore_write_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

// Whether the reader of standard output is gone, as in "weft opt --list-ops | head".
bool reader_left() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// Output for a script must be complete, or the command must fail.
void check_output() {
  bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!lost || reader_left()) return;
  throw UserError(ExitCode::CannotWrite,
                  "standard output: cannot write all output; check the free space");
}

ExitCode run(int argc, char** argv) {
  ExitCode code = ExitCode::Done;
  const Finish finish = [&](ExitCode result) { code = result; };
  run_command_line(argc, argv, [&](Command program) {
    add_train_command(program, finish);
    add_data_command(program, finish);
    add_generate_command(program, finish);
    add_eval_command(program, finish);
    add_export_command(program, finish);
    add_checkpoint_command(program, finish);
    add_plan_command(program, finish);
    add_opt_command(program, finish);
    add_verify_command(program, finish);
    add_compare_command(program, finish);
    add_bench_command(program, finish);
  });
  check_output();
  return code;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::open_closed_streams();
  weft::ignore_write_signals();
  try {
    return static_cast<int>(weft::run(argc, argv));
  } catch (...) {
    return weft::fail(weft::current_failure());
  }
}
