// weft data prepare | train-tokenizer | inspect
#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "data/prepare.h"
#include "data/text_source.h"
#include "data/token_file.h"
#include "data/tokenizer_json.h"
#include "data/train_bpe.h"
#include "tools/commands.h"

namespace weft {

namespace {

struct PrepareArguments {
  PrepareOptions options;
  std::string tokenizer = "char";
  LoadBpeOptions load;
  std::string end_token;
};

// The end token of a tokenizer file, unless the user sets one.
std::string choose_end_token(const PrepareArguments& arguments) {
  if (arguments.end_token == "none") return "";
  if (!arguments.end_token.empty()) return arguments.end_token;
  const BpeTokenizer& tokenizer = *arguments.options.merges->merges().tokenizer;
  const auto id = tokenizer.end_token();
  USER_CHECK(id, arguments.tokenizer,
             ": no end token with a known name; give one with --end-token, or none");
  return std::string(tokenizer.decode(*id));
}

// Rejects --field if no input has fields.
void check_field(const Command& command, const std::vector<std::string>& inputs,
                 const std::string& output) {
  if (!command.has("--field")) return;
  const std::vector<std::string> files = list_text_files(inputs, output);
  USER_CHECK(std::any_of(files.begin(), files.end(), is_jsonl),
             "command line: --field has no effect: no input is a .jsonl file; leave it out");
}

void run_prepare(const Command& command, PrepareArguments arguments) {
  PrepareOptions& options = arguments.options;
  const auto kind = tokenizer_kind(arguments.tokenizer);
  const bool file = !kind || *kind == TokenizerKind::Bpe;
  options.tokenizer = file ? TokenizerKind::Bpe : *kind;
  if (file) {
    USER_CHECK(path_exists(arguments.tokenizer), "tokenizer ", in_quotes(arguments.tokenizer),
               " is unknown; use char, byte, or the path of a tokenizer file or folder");
    options.merges = Tokenizer::bpe(load_bpe(arguments.tokenizer, arguments.load));
    options.end_token = choose_end_token(arguments);
  } else {
    for (const char* option : {"--end-token", "--split", "--special", "--threads"}) {
      USER_CHECK(!command.has(option), "command line: ", option, " has no effect with --tokenizer ",
                 arguments.tokenizer, "; leave it out");
    }
  }
  check_field(command, options.inputs, options.output_folder);
  const PrepareResult result = prepare(options);
  if (result.resumed) log_line("resumed an interrupted run");
  log_line(cat("tokenizer ", result.tokenizer.identity()));
  log_line(cat(result.train_tokens, " training tokens, ", result.validation_tokens,
               " validation tokens"));
  for (const auto& path : result.written) log_line(cat("wrote ", path));
  if (!result.removed.empty()) {
    log_line(cat("removed ", result.removed, ", left by an earlier run"));
  }
}

struct TrainTokenizerArguments {
  TrainBpeOptions options;
  std::string output;
  std::string pattern = "gpt2";
};

void run_train_tokenizer(const Command& command, const TrainTokenizerArguments& arguments) {
  TrainBpeOptions options = arguments.options;
  check_field(command, options.inputs, "");
  options.pattern = split_pattern(arguments.pattern);
  OutputFile file(arguments.output);  // opened first to check that it can be written
  const BpeTokenizer tokenizer(train_bpe(options));
  file.write(tokenizer_json_text(tokenizer.parts()));
  file.commit();
  log_line(cat("tokenizer ",
               tokenizer_identity(TokenizerKind::Bpe, tokenizer.vocab_size(), tokenizer.hash())));
  log_line(cat("wrote ", arguments.output));
}

struct InspectArguments {
  std::string path;
  int64_t tokens = 200;
  int64_t samples = 1;
};

// Prints the largest id, the number of distinct ids, and the number of documents.
void log_counts(const TokenFile& file) {
  const TokenAt largest = file.max_token();
  std::vector<bool> seen(static_cast<size_t>(largest.token) + 1);
  const int64_t end = file.info() ? file.info()->end_token.value_or(-1) : -1;
  int64_t distinct = 0, ends = 0;
  file.visit([&](int64_t, std::span<const int32_t> ids) {
    for (const int32_t token : ids) {
      const auto id = static_cast<uint32_t>(token);
      if (!seen[id]) ++distinct;
      seen[id] = true;
      if (int64_t{id} == end) ++ends;
    }
  });
  log_line(
      cat("largest id ", largest.token, " at ", largest.position, ", ", distinct, " distinct ids"));
  if (end >= 0) log_line(cat(ends + 1, " documents, id ", end, " between them"));
}

void run_inspect(const InspectArguments& arguments) {
  const TokenFile file = TokenFile::open(arguments.path);
  log_line(cat(arguments.path, ": ", file.size(), " tokens of ", file.layout().bytes_per_token,
               " bytes"));
  if (file.size() == 0) return;
  log_counts(file);
  std::optional<Tokenizer> tokenizer;
  if (file.info()) tokenizer = file.tokenizer();
  if (tokenizer) {
    log_line(cat("tokenizer ", tokenizer->identity()));
  } else {
    log_line(cat("no ", arguments.path, ".json next to it, so ids are shown"));
  }
  const int64_t samples = std::min(arguments.samples, file.size());
  for (int64_t sample = 0; sample < samples; ++sample) {
    // Evenly spread over the file, the first one at its start.
    const int64_t begin = sample * (file.size() / samples);
    std::vector<int32_t> ids(static_cast<size_t>(std::min(arguments.tokens, file.size() - begin)));
    file.read(begin, ids);
    std::string text;
    for (const int32_t id : ids) text += cat(text.empty() ? "" : " ", id);
    log_line(cat(begin == 0 ? "begins with" : cat("at ", begin), ":\n",
                 tokenizer ? tokenizer->decode(ids) : text));
  }
}

void add_prepare(Command data) {
  auto arguments = std::make_shared<PrepareArguments>();
  PrepareOptions& options = arguments->options;
  Command command =
      data.add_command("prepare", "turn text into train.bin and val.bin, each with a JSON file");
  command.add_option("INPUT", options.inputs, "text files, .jsonl files, and folders of them")
      .required();
  command.add_option("--output", options.output_folder, "folder to write").required();
  command
      .add_option("--tokenizer", arguments->tokenizer,
                  "char, byte, or a path: tokenizer.json, encoder.json, a .tiktoken file, or a "
                  "folder")
      .show_default();
  command.add_option(
      "--split", arguments->load.pattern,
      "split pattern of a .tiktoken file, or of vocab.json and merges.txt: " + split_names());
  command
      .add_option("--special", arguments->load.special,
                  "special token of a .tiktoken file, as text=id; may be repeated")
      .one_value_each();
  command.add_option("--end-token", arguments->end_token,
                     "added token between documents, or none; default: one with a known name");
  command.add_option("--field", options.field, "field of a .jsonl file's objects with the text")
      .show_default();
  command
      .add_option("--validation-fraction", options.validation_fraction,
                  "fraction of the text, at its end, that goes to val.bin")
      .show_default();
  command.add_option("--threads", options.threads, "threads for tokenizer files; 0 uses every core")
      .range(0, kMaxThreads)
      .show_default();
  command.on_run([=] { run_prepare(command, *arguments); });
}

void add_train_tokenizer(Command data) {
  auto arguments = std::make_shared<TrainTokenizerArguments>();
  TrainBpeOptions& options = arguments->options;
  options.special = {"<|endoftext|>"};
  Command command =
      data.add_command("train-tokenizer", "train a byte-level BPE and write a tokenizer.json");
  command.add_option("INPUT", options.inputs, "text files, .jsonl files, and folders of them")
      .required();
  command.add_option("--output", arguments->output, "tokenizer.json to write").required();
  command
      .add_option("--vocab-size", options.vocab_size,
                  "number of ids: 256 bytes, merges and special tokens")
      .required();
  command.add_option("--split", arguments->pattern, split_names()).show_default();
  command
      .add_option("--special", options.special, "special token; may be repeated; gets the last ids")
      .one_value_each()
      .show_default();
  command.add_option("--field", options.field, "field of a .jsonl file's objects with the text")
      .show_default();
  command.add_option("--threads", options.threads, "threads; 0 uses every core")
      .range(0, kMaxThreads)
      .show_default();
  command.on_run([=] { run_train_tokenizer(command, *arguments); });
}

void add_inspect(Command data) {
  auto arguments = std::make_shared<InspectArguments>();
  Command command = data.add_command("inspect", "show the contents of a token file");
  command.add_option("FILE", arguments->path, "token file: Weft's, nanoGPT's or llm.c's")
      .required();
  command.add_option("--tokens", arguments->tokens, "tokens per sample")
      .range(0, 1 << 30)
      .show_default();
  command
      .add_option("--samples", arguments->samples, "number of samples, evenly spread over the file")
      .range(1, 1 << 30)
      .show_default();
  command.on_run([=] { run_inspect(*arguments); });
}

}  // namespace

void add_data_command(Command app, const Finish&) {
  Command data = app.add_command("data", "create and inspect token files");
  data.require_commands(1, 1);
  add_prepare(data);
  add_train_tokenizer(data);
  add_inspect(data);
}

}  // namespace weft
