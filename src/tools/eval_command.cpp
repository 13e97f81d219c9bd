// weft eval CHECKPOINT DATA: loss and perplexity of weights on a token file.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "data/loader.h"
#include "model/hf_config.h"
#include "tools/commands.h"
#include "train/load_weights.h"
#include "train/training_data.h"

namespace weft {

namespace {

struct EvalArguments {
  std::string folder;
  std::string data;
  int64_t seq_len = 0;  // 0: the model's, at most 1024
  int64_t batch = 8;
  std::string backend = "cpu";
};

ExitCode run_eval(const EvalArguments& arguments) {
  constexpr int64_t kMaxDefaultLength = 1024;
  check_backend_option(arguments.backend);
  const std::string folder = find_weights(arguments.folder);
  const ModelSpec spec = read_hf_config(folder + "/config.json");
  TokenFile file = TokenFile::open(arguments.data);
  check_tokenizer_of_weights(file, folder);
  const int64_t length =
      arguments.seq_len > 0 ? arguments.seq_len : std::min(spec.max_seq_len, kMaxDefaultLength);
  INPUT_CHECK(file.size() > length, file.path(), ": file has ", file.size(),
              " tokens, expected at least ", length + 1, " for one window of ", length,
              "; use more text or a smaller --seq-len");
  const TokenSource source = TokenSource::file(std::move(file), length, spec.vocab_size);
  const int64_t windows = source.validation_windows(length);

  Config config;
  config.device.backend = arguments.backend;
  config.training.seq_len = length;
  config.training.local_batch_size = std::min(arguments.batch, windows);
  // The windows that do not fill a batch are evaluated one by one.
  double sum = 0;
  const auto evaluate = [&](int64_t first, int64_t end, int64_t batch_size) {
    if (first >= end) return;
    Compiled compiled = compile_forward(
        config, spec, {.batch = batch_size, .seq_len = length, .mode = BuildMode::Eval});
    const WeightFiles weights = open_weights(folder, compiled);
    Session session(config, std::move(compiled));
    load_weights(weights, session);
    Batch batch;
    batch.tokens.resize(static_cast<size_t>(batch_size * length));
    batch.targets.resize(batch.tokens.size());
    for (int64_t at = first; at < end; at += batch_size) {
      source.validation_batch({.first_window = at, .count = batch_size, .seq_len = length},
                              batch.tokens.data(), batch.targets.data());
      sum += session.evaluate({&batch, 1}) * static_cast<double>(batch_size);
    }
  };
  const int64_t batch_size = config.training.local_batch_size;
  const int64_t full = windows / batch_size * batch_size;
  evaluate(0, full, batch_size);
  evaluate(full, windows, 1);
  const double loss = sum / static_cast<double>(windows);
  const int64_t tokens = windows * length;
  std::printf("loss %.4f  perplexity %.3f  %lld tokens in %lld windows of %lld  %s\n", loss,
              std::exp(loss), static_cast<long long>(tokens), static_cast<long long>(windows),
              static_cast<long long>(length), folder.c_str());
  return ExitCode::Done;
}

}  // namespace

void add_eval_command(Command app, const Finish& finish) {
  auto arguments = std::make_shared<EvalArguments>();
  Command command = app.add_command("eval", "measure the perplexity of weights on a token file");
  command
      .add_option("CHECKPOINT", arguments->folder,
                  "folder of a checkpoint, of a run (its newest checkpoint) or of a model")
      .required();
  command.add_option("DATA", arguments->data, "token file").required();
  command
      .add_option("--seq-len", arguments->seq_len,
                  "tokens per window; 0: as many as the model allows, at most 1024")
      .range(0, 1 << 30)
      .show_default();
  command.add_option("--batch", arguments->batch, "windows at a time")
      .range(1, 65536)
      .show_default();
  command.add_option("--backend", arguments->backend, "reference, cpu or cuda").show_default();
  command.on_run([=] { finish(run_eval(*arguments)); });
}

}  // namespace weft
