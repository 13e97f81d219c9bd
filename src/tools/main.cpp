// The weft command: parses the command line, runs one subcommand, and turns every failure into one
// sentence on standard error and an exit code.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "config/load.h"
#include "runtime/device.h"
#include "tools/commands.h"

namespace weft {

std::vector<std::string> config_overrides(const CLI::App& command) {
  std::vector<std::string> overrides = command.remaining();
  for (const auto& argument : overrides) {
    USER_CHECK(looks_like_override(argument), "command line: unexpected argument \"", argument,
               "\"; options of the run are written --section.key=value");
  }
  return overrides;
}

void check_backend_option(const std::string& name) {
  find_computing_backend(name, cat("command line: --backend ", name));
}

namespace {

int fail(const Failure& failure) {
  std::fprintf(stderr, "weft: %s\n", failure.message.c_str());
  return static_cast<int>(failure.code);
}

// A file size limit and a closed pipe then show as a failed write, which has a sentence to say.
void ignore_write_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

// Whether the reader of standard output has gone, as in "weft opt --list-ops | head".
bool reader_left() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// Output that a script reads must be whole, or the command must fail.
void check_output() {
  bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!lost || reader_left()) return;
  throw UserError(ExitCode::CannotWrite,
                  "standard output: cannot write all of it; check the space where it goes");
}

// Names a word that should be a command and is none; the parser would only say that one is missing.
void check_commands(CLI::App* app, int argc, char** argv) {
  for (int i = 1; i < argc && app->get_require_subcommand_min() > 0; ++i) {
    std::string word = argv[i];
    if (word.starts_with('-')) return;
    std::vector<std::string> known;
    for (const CLI::App* command : app->get_subcommands({})) known.push_back(command->get_name());
    bool found = std::find(known.begin(), known.end(), word) != known.end();
    USER_CHECK(found, "command line: unknown command ", in_quotes(word), "; ", app->get_name(),
               " has ", join(known, ", "));
    app = app->get_subcommand(word);
  }
}

// What the parser says, as our messages are written, with the help that fits.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  bool word = text.size() > 1 && std::isupper(static_cast<unsigned char>(text[1])) == 0;
  if (word) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  std::string command = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  return cat("command line: ", text, "; ", command, " --help explains");
}

int run(int argc, char** argv) {
  CLI::App app{"Weft compiles one whole training step of a transformer into a plan and runs it.",
               "weft"};
  app.require_subcommand(1);
  app.set_version_flag("--version", WEFT_VERSION);
  ExitCode code = ExitCode::Done;
  Finish finish = [&](ExitCode result) { code = result; };
  add_train_command(app, finish);
  add_data_command(app, finish);
  add_generate_command(app, finish);
  add_plan_command(app, finish);
  add_opt_command(app, finish);
  add_verify_command(app, finish);
  add_bench_command(app, finish);
  check_commands(&app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    app.exit(success);
  } catch (const CLI::ParseError& error) {
    return fail({ExitCode::Config, parse_message(app, error)});
  }
  check_output();
  return static_cast<int>(code);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::ignore_write_signals();
  try {
    return weft::run(argc, argv);
  } catch (...) {
    return weft::fail(weft::current_failure());
  }
}
