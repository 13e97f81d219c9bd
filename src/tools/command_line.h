// What the subcommands use of the command-line library, which only command_line.cpp includes: its
// header would cost every command seconds of compile time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
class Option;
}  // namespace CLI

namespace weft {

// One option of a command, for what is asked of it beyond its type.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  Option& range(int64_t at_least, int64_t at_most);
  Option& one_of(const std::vector<std::string>& names);
  Option& needs(const Option& other);
  // Several values may follow in one word, with a comma between them.
  Option& comma_separated();
  // Each mention takes one value; the option may be repeated.
  Option& one_value_each();
  // Shows the value that the target has now, or this text, as the default in --help.
  Option& show_default();
  Option& show_default(const std::string& text);

 private:
  CLI::Option* option_;
};

// A command, or the program itself. A handle: copies name the same command.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_command(const std::string& name, const std::string& doc);
  // How many of its commands must be named.
  void require_commands(size_t at_least, size_t at_most);

  // An option whose value goes to `target`, which outlives the parsing. Names without dashes are
  // positional. Targets: std::string, int64_t, uint64_t, double, vectors of text or numbers, and
  // std::optional<std::string>.
  template <class T>
  Option add_option(const std::string& name, T& target, const std::string& doc);
  Option add_flag(const std::string& name, bool& target, const std::string& doc);

  // Takes "--section.key=value" arguments, which overrides() returns.
  void allow_overrides();
  // Throws UserError for an argument of another form.
  std::vector<std::string> overrides() const;

  // What runs once the command line is read.
  void on_run(std::function<void()> run);
  // Whether one of its own commands was named, and whether an option was.
  bool names_command() const;
  bool has(const std::string& option) const;

 private:
  CLI::App* app_;
};

// Adds the commands of the program, reads the command line and runs what it names. Throws UserError
// for a command line that it cannot read; --help and --version print and return.
void run_command_line(int argc, char** argv, const std::function<void(Command program)>& add);

}  // namespace weft
