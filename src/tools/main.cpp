// The weft command: parses the command line, runs one subcommand, and turns every failure into one
// sentence on standard error and an exit code.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "base/text.h"
#include "config/load.h"
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

namespace {

int fail(ExitCode code, const std::string& message) {
  std::fprintf(stderr, "weft: %s\n", message.c_str());
  return static_cast<int>(code);
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return fail(ExitCode::Config, cat("command line: ", error.what(), "; weft --help explains"));
  }
  return static_cast<int>(code);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using weft::ExitCode;
  try {
    return weft::run(argc, argv);
  } catch (const weft::UserError& error) {
    return weft::fail(error.code(), error.what());
  } catch (const weft::DeviceError& error) {
    return weft::fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return weft::fail(ExitCode::OutOfMemory, "the machine has no memory left");
  } catch (const std::exception& error) {
    return weft::fail(ExitCode::Internal, error.what());
  }
}
