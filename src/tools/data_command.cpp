// weft data prepare | inspect
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/log.h"
#include "data/prepare.h"
#include "data/token_file.h"
#include "tools/commands.h"

namespace weft {

namespace {

struct PrepareArguments {
  PrepareOptions options;
  std::string tokenizer = "char";
};

void run_prepare(const PrepareArguments& arguments) {
  PrepareOptions options = arguments.options;
  options.tokenizer = tokenizer_kind(arguments.tokenizer);
  PrepareResult result = prepare(options);
  log_line(cat("tokenizer ", result.tokenizer.identity()));
  log_line(
      cat(result.train_tokens, " tokens to train, ", result.validation_tokens, " to validate"));
  for (const auto& path : result.written) log_line(cat("wrote ", path));
}

void run_inspect(const std::string& path, int64_t shown) {
  USER_CHECK(shown >= 0, "command line: --tokens ", shown, " is negative; ask for 0 or more");
  TokenFile file = TokenFile::open(path);
  log_line(cat(path, ": ", file.size(), " tokens of ", file.layout().bytes_per_token, " bytes"));
  if (file.size() == 0) return;
  TokenAt largest = file.max_token();
  log_line(cat("largest id ", largest.token, " at ", largest.position));
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < std::min(shown, file.size()); ++i) {
    ids.push_back(static_cast<int32_t>(file.at(i)));
  }
  if (file.info()) {
    log_line(cat("tokenizer ", file.info()->tokenizer.identity()));
    log_line(cat("begins with:\n", file.info()->tokenizer.decode(ids)));
    return;
  }
  std::string text;
  for (int32_t id : ids) text += cat(text.empty() ? "" : " ", id);
  log_line(cat("no ", path, ".json beside it, so ids are shown:\n", text));
}

}  // namespace

void add_data_command(CLI::App& app, const Finish&) {
  CLI::App* data = app.add_subcommand("data", "make and look at token files");
  data->require_subcommand(1);

  auto arguments = std::make_shared<PrepareArguments>();
  CLI::App* prepare_command = data->add_subcommand(
      "prepare", "turn text into train.bin and val.bin, with a JSON beside each");
  prepare_command->add_option("INPUT", arguments->options.inputs, "text files and folders of them")
      ->required();
  prepare_command->add_option("--output", arguments->options.output_folder, "folder to write")
      ->required();
  prepare_command->add_option("--tokenizer", arguments->tokenizer, "char or byte")
      ->capture_default_str();
  prepare_command
      ->add_option("--validation-fraction", arguments->options.validation_fraction,
                   "share of the tokens, at the end, that go to val.bin")
      ->capture_default_str();
  prepare_command->callback([=] { run_prepare(*arguments); });

  auto path = std::make_shared<std::string>();
  auto shown = std::make_shared<int64_t>(200);
  CLI::App* inspect = data->add_subcommand("inspect", "show what a token file holds");
  inspect->add_option("FILE", *path, "token file: Weft's, nanoGPT's or llm.c's")->required();
  inspect->add_option("--tokens", *shown, "how many tokens to show")->capture_default_str();
  inspect->callback([=] { run_inspect(*path, *shown); });
}

}  // namespace weft
