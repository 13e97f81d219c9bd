#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"
#include "config/load.h"

namespace weft {

namespace {

// Limits messages of the parser, which repeats values in full.
constexpr size_t kLongestMessage = 200;

// Reports a word that should be a command but is not; the parser would only say that one is
// missing.
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

// "Could not convert: --top-k = many" as "--top-k many is not a valid number": only numbers and the
// values of flags are converted. Any other text as it is.
std::string without_conversion(const CLI::App& command, std::string_view text) {
  constexpr std::string_view kStart = "Could not convert: ";
  const size_t equals = text.find(" = ");
  if (!text.starts_with(kStart) || equals == std::string_view::npos) return std::string(text);
  const std::string name(text.substr(kStart.size(), equals - kStart.size()));
  const CLI::Option* option = command.get_option_no_throw(name);
  const bool is_flag = option != nullptr && option->get_items_expected_max() == 0;
  return is_flag ? cat(name, " takes no value")
                 : cat(name, " ", text.substr(equals + 3), " is not a valid number");
}

// The parser's message in our style, with a pointer to the right --help.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  std::string text = shortened(without_conversion(*command, error.what()), kLongestMessage);
  bool word = text.size() > 1 && std::isupper(static_cast<unsigned char>(text[1])) == 0;
  if (word) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return cat("command line: ", text, "; see ", name, " --help");
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::range(int64_t at_least, int64_t at_most) {
  option_->check(CLI::Range(at_least, at_most));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& names) {
  option_->check(CLI::IsMember(names));
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::comma_separated() {
  option_->delimiter(',');
  return *this;
}

Option& Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::show_default(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& doc) {
  return Command(app_->add_subcommand(name, doc));
}

void Command::require_commands(size_t at_least, size_t at_most) {
  app_->require_subcommand(at_least, at_most);
}

template <class T>
Option Command::add_option(const std::string& name, T& target, const std::string& doc) {
  return Option(app_->add_option(name, target, doc));
}

template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, int64_t&, const std::string&);
template Option Command::add_option(const std::string&, uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::string>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, std::vector<int64_t>&, const std::string&);

Option Command::add_flag(const std::string& name, bool& target, const std::string& doc) {
  return Option(app_->add_flag(name, target, doc));
}

Option Command::add_flag(const std::string& name, std::optional<std::string>& target,
                         const std::string& alone, const std::string& doc) {
  return Option(app_->add_flag(cat(name, "{", alone, "}"), target, doc));
}

void Command::allow_overrides() {
  app_->allow_extras();
}

std::vector<std::string> Command::overrides(const std::string& flag) const {
  std::vector<std::string> overrides = app_->remaining();
  for (const auto& argument : overrides) {
    const bool is_value = !flag.empty() && has(flag) && !argument.starts_with('-');
    USER_CHECK(!is_value, "command line: unexpected argument ", in_quotes(argument),
               "; a value of ", flag, " follows an equals sign: ", flag, "=", argument);
    USER_CHECK(looks_like_override(argument), "command line: unexpected argument ",
               in_quotes(argument), "; config keys are set with --section.key=value");
  }
  return overrides;
}

void Command::on_run(std::function<void()> run) {
  app_->callback(std::move(run));
}

bool Command::names_command() const {
  return !app_->get_subcommands().empty();
}

bool Command::has(const std::string& option) const {
  return app_->count(option) > 0;
}

void run_command_line(int argc, char** argv, const std::function<void(Command program)>& add) {
  CLI::App app{"Weft compiles a complete training step of a transformer into a plan and runs it.",
               "weft"};
  app.require_subcommand(1);
  app.set_version_flag("--version", WEFT_VERSION);
  add(Command(&app));
  check_commands(&app, argc, argv);
  check_override_words(std::span(argv, static_cast<size_t>(argc)));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    app.exit(success);
  } catch (const CLI::ParseError& error) {
    throw UserError(ExitCode::Config, parse_message(app, error));
  }
}

}  // namespace weft
