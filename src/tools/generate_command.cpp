// weft generate DIR: text from trained weights.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "data/tokenizer.h"
#include "model/hf_config.h"
#include "tools/commands.h"
#include "tools/sampler.h"
#include "train/load_weights.h"
#include "train/session.h"

namespace weft {

namespace {

struct GenerateArguments {
  std::string folder;
  std::string prompt;
  int64_t tokens = 200;
  std::string backend = "cpu";
  SamplerOptions sampler;
};

// The context of a new text: an end token, or a newline.
std::vector<int32_t> start_of_text(const Tokenizer& tokenizer) {
  if (const std::optional<int32_t> end = tokenizer.end_token()) return {*end};
  USER_CHECK(tokenizer.kind() != TokenizerKind::Char || tokenizer.id_of(U'\n') >= 0,
             "command line: --prompt is empty, and the vocabulary has neither an end token nor a "
             "newline to start from; give a prompt");
  return tokenizer.encode("\n", "newline");
}

// Errors in the prompt are reported as command-line errors.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt) {
  if (prompt.empty()) return start_of_text(tokenizer);
  try {
    return tokenizer.encode(prompt, "command line: --prompt");
  } catch (const UserError& error) {
    throw UserError(ExitCode::Config, error.what());
  }
}

// The context the model sees: the last `window` tokens, padded at the end, where causal attention
// does not look.
std::vector<int32_t> context_of(const std::vector<int32_t>& ids, int64_t window) {
  size_t size = std::min(ids.size(), static_cast<size_t>(window));
  std::vector<int32_t> context(ids.end() - static_cast<int64_t>(size), ids.end());
  context.resize(static_cast<size_t>(window), 0);
  return context;
}

ExitCode run_generate(const GenerateArguments& arguments) {
  check_sampler(arguments.sampler);
  check_backend_option(arguments.backend);
  Config config;
  config.device.backend = arguments.backend;
  const std::string folder = find_weights(arguments.folder);
  ModelSpec spec = read_hf_config(folder + "/config.json");
  Tokenizer tokenizer = Tokenizer::open(folder);
  INPUT_CHECK(tokenizer.vocab_size() <= spec.vocab_size, folder, ": the tokenizer has ",
              tokenizer.vocab_size(), " ids, the model ", spec.vocab_size);
  std::vector<int32_t> ids = encode_prompt(tokenizer, arguments.prompt);

  int64_t window = std::min(spec.max_seq_len, static_cast<int64_t>(ids.size()) + arguments.tokens);
  Compiled compiled =
      compile_forward(config, spec, {.batch = 1, .seq_len = window, .mode = BuildMode::Decode});
  const WeightFiles weights = open_weights(folder, compiled);
  Session session(config, std::move(compiled));
  load_weights(weights, session);

  std::fputs(arguments.prompt.c_str(), stdout);
  auto vocab = static_cast<size_t>(spec.vocab_size);
  const std::optional<int32_t> end = tokenizer.end_token();
  // Stops when the reader of standard output is gone.
  for (int64_t i = 0; i < arguments.tokens && std::ferror(stdout) == 0; ++i) {
    std::vector<float> logits = session.logits(context_of(ids, window));
    size_t last = std::min(ids.size(), static_cast<size_t>(window)) - 1;
    std::span<const float> row(logits.data() + last * vocab,
                               static_cast<size_t>(tokenizer.vocab_size()));
    auto next =
        static_cast<int32_t>(sample_token(row, arguments.sampler, static_cast<uint64_t>(i)));
    if (next == end) break;
    ids.push_back(next);
    // A token may be part of a character; the text is the concatenation of all bytes.
    const std::string text = tokenizer.decode(std::span(&next, 1));
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  std::fputc('\n', stdout);
  return ExitCode::Done;
}

}  // namespace

void add_generate_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<GenerateArguments>();
  Command command = app.add_command("generate", "continue a text with trained weights");
  command
      .add_option("DIR", arguments->folder,
                  "folder of a run, or one with config.json, weights and tokenizer")
      .required();
  command.add_option("--prompt", arguments->prompt, "text to continue; empty starts a new one");
  command.add_option("--tokens", arguments->tokens, "number of tokens to generate")
      .range(1, 1 << 30)
      .show_default();
  command
      .add_option("--temperature", arguments->sampler.temperature,
                  "0 always picks the most likely token")
      .show_default();
  command.add_option("--top-k", arguments->sampler.top_k, "only the k most likely; 0: all")
      .show_default();
  command
      .add_option("--top-p", arguments->sampler.top_p,
                  "only the most likely tokens with this total probability")
      .show_default();
  command.add_option("--seed", arguments->sampler.seed, "same seed, same text").show_default();
  command.add_option("--backend", arguments->backend, "reference, cpu or cuda").show_default();
  command.on_run([=] { finish(run_generate(*arguments)); });
}

}  // namespace weft
