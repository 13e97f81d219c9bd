// What the subcommands use of the command-line library. Only command_line.cpp includes its header,
// which takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
class Option;
}  // namespace CLI

namespace weft {

// One option of a command, for settings beyond its type.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  Option& range(int64_t at_least, int64_t at_most);
  Option& one_of(const std::vector<std::string>& names);
  Option& needs(const Option& other);
  // One word may hold several values, separated by commas.
  Option& comma_separated();
  // Each occurrence takes one value; the option may be repeated.
  Option& one_value_each();
  // Shows the target's current value, or this text, as the default in --help.
  Option& show_default();
  Option& show_default(const std::string& text);

 private:
  CLI::Option* option_;
};

// A command, or the program itself. A handle: copies refer to the same command.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_command(const std::string& name, const std::string& doc);
  // How many of its subcommands must be given.
  void require_commands(size_t at_least, size_t at_most);

  // An option whose value goes to `target`, which outlives the parsing. Names without dashes are
  // positional. Targets: std::string, int64_t, uint64_t, double, vectors of strings or numbers, and
  // std::optional<std::string>.
  template <class T>
  Option add_option(const std::string& name, T& target, const std::string& doc);
  Option add_flag(const std::string& name, bool& target, const std::string& doc);
  // A flag that may have a value, as --name=VALUE; without one the target is `alone`.
  Option add_flag(const std::string& name, std::optional<std::string>& target,
                  const std::string& alone, const std::string& doc);

  // Accepts "--section.key=value" arguments, which overrides() returns.
  void allow_overrides();
  // Throws UserError for any other argument; `flag` is one that may have a value, which a word
  // without dashes was probably meant to be.
  std::vector<std::string> overrides(const std::string& flag = "") const;

  // The function to run once the command line is parsed.
  void on_run(std::function<void()> run);
  // Whether one of its subcommands was given, and whether an option was.
  bool names_command() const;
  bool has(const std::string& option) const;

 private:
  CLI::App* app_;
};

// Adds the commands of the program, parses the command line and runs what it selects. Throws
// UserError for an invalid command line; --help and --version print and return.
void run_command_line(int argc, char** argv, const std::function<void(Command program)>& add);

}  // namespace weft
