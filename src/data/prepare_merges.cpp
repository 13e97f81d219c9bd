// Files are split into spans (the training or validation part of a file), spans into waves of
// chunks. All threads encode a wave, which is then written in order. After each wave a JSON file
// next to the partial outputs records how much of them is valid: all that a killed run needs to
// resume.
#include "data/prepare_merges.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/parallel.h"
#include "data/text_source.h"
#include "data/token_file.h"

namespace weft {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxStateBytes = 1 << 16;
constexpr const char* kStateFile = "prepare.partial.json";

// Which parts of the files go to which output: the split is at a fraction of all bytes.
std::vector<std::vector<TextSpan>> split_files(const std::vector<SourceFile>& files,
                                               double fraction) {
  const int64_t total = total_size(files);
  int64_t left = static_cast<int64_t>(static_cast<double>(total) * (1.0 - fraction));
  if (fraction == 0.0) left = total;
  std::vector<std::vector<TextSpan>> outputs(fraction == 0.0 ? 1 : 2);
  for (const SourceFile& file : files) {
    int64_t split = std::clamp<int64_t>(left, 0, file.size);
    if (split > 0 && split < file.size) split = place_to_split(MappedFile::open(file.path), split);
    left -= file.size;
    if (split > 0) outputs.front().push_back({&file, 0, split});
    if (split < file.size) outputs.back().push_back({&file, split, file.size});
  }
  return outputs;
}

// The progress of a run.
struct State {
  size_t output = 0;
  TextPlace place = {};         // within the spans of that output
  std::vector<int64_t> tokens;  // valid ones in each partial output
};

// Hashes everything the result depends on; a saved state with another key is ignored.
uint64_t run_key(const PrepareOptions& options, const std::vector<SourceFile>& files) {
  Hasher hasher;
  for (const SourceFile& file : files) {
    hasher.add_field(file.path);
    hasher.add(static_cast<uint64_t>(file.size));
    hasher.add(static_cast<uint64_t>(file.changed));
  }
  hasher.add(options.merges->hash());
  hasher.add_field(options.end_token);
  hasher.add_field(options.field);
  hasher.add_field(format_double(options.validation_fraction));
  return hasher.value();
}

std::optional<State> read_state(const std::string& path, uint64_t key, size_t outputs) {
  if (!path_exists(path)) return std::nullopt;
  try {
    const nlohmann::json json = read_json_file(path, kMaxStateBytes);
    if (json_string(json, "key", path) != hex64(key)) return std::nullopt;
    State state;
    state.output = static_cast<size_t>(json_int(json, "output", path));
    state.place = {static_cast<size_t>(json_int(json, "span", path)),
                   json_int(json, "offset", path)};
    for (const auto& tokens : json_member(json, "tokens", path)) {
      state.tokens.push_back(tokens.get<int64_t>());
    }
    if (state.tokens.size() != outputs || state.output >= outputs) return std::nullopt;
    return state;
  } catch (const std::exception&) {
    return std::nullopt;  // not ours, or damaged: start over
  }
}

std::string state_text(const State& state, uint64_t key) {
  const nlohmann::json json = {{"key", hex64(key)},
                               {"output", state.output},
                               {"span", state.place.span},
                               {"offset", state.place.offset},
                               {"tokens", state.tokens}};
  return json.dump() + "\n";
}

void remove_state(const std::string& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
  remove_partial(path);
}

// Appends ids as little-endian numbers.
void append_ids(std::span<const int32_t> ids, int64_t bytes_per_token, std::string& out) {
  for (const int32_t id : ids) {
    for (int64_t i = 0; i < bytes_per_token; ++i) {
      out += static_cast<char>(static_cast<uint32_t>(id) >> (8 * i) & 0xff);
    }
  }
}

// One run, from its initial state to the committed files.
class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options)
      : options_(options),
        merges_(*options.merges->merges().tokenizer),
        files_(look_at_files(list_text_files(options.inputs, options.output_folder))),
        outputs_(split_files(files_, options.validation_fraction)),
        key_(run_key(options, files_)),
        state_path_(options.output_folder + "/" + kStateFile),
        bytes_per_token_(merges_.vocab_size() > 65536 ? 4 : 2),
        bar_("prepare", total_size(files_), options.progress) {
    if (!options.end_token.empty()) end_ = merges_.find_added(options.end_token);
    USER_CHECK(options.end_token.empty() || end_, "command line: --end-token ",
               in_quotes(options.end_token),
               " is not an added token of the tokenizer; give another one, or none");
    const int threads = std::min(thread_count(options.threads), kWaveThreads);
    for (int i = 0; i < threads; ++i) encoders_.emplace_back(merges_, Specials::AsText);
  }
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;
  // After an error there is nothing to resume; a killed process does not get here.
  ~Preparation() {
    if (started_) remove_state(state_path_);
  }

  PrepareResult run() {
    begin();
    for (; state_.output < outputs_.size(); ++state_.output) {
      for (bool more = true; more;) {
        more = encode_wave();
        // The last wave of an output does not wait for the disk: a kill would lose little.
        if (more) save_state();
        bar_.update(done_bytes_);
      }
      state_.place = {};
    }
    return commit();
  }

 private:
  // The ids of a chunk.
  struct Encoded {
    bool begins_document = false;
    std::vector<int32_t> ids;
  };

  std::string output_path(size_t output) const {
    return options_.output_folder + (output == 0 ? "/train.bin" : "/val.bin");
  }

  void begin() {
    make_directories(options_.output_folder);
    std::optional<State> found = read_state(state_path_, key_, outputs_.size());
    if (found && !has_partial_files(*found)) found.reset();
    resumed_ = found.has_value();
    state_ = found.value_or(State{.tokens = std::vector<int64_t>(outputs_.size(), 0)});
    for (size_t i = 0; i < outputs_.size(); ++i) {
      writers_.push_back(OutputFile::resume(output_path(i), state_.tokens[i] * bytes_per_token_));
    }
    started_ = true;
    if (!resumed_) remove_leftovers(options_.output_folder);
    for (size_t o = 0; o <= state_.output; ++o) {
      for (size_t s = 0; s < outputs_[o].size(); ++s) {
        const TextSpan& span = outputs_[o][s];
        const auto& [at, offset] = state_.place;
        const bool done = o < state_.output || s < at;
        const bool current = o == state_.output && s == at && offset > 0;
        if (done || current) done_bytes_ += (done ? span.end : offset) - span.begin;
      }
    }
  }

  // Whether the partial outputs are as long as the state says.
  bool has_partial_files(const State& state) const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      std::error_code error;
      const auto size = fs::file_size(output_path(i) + ".partial", error);
      if (error || static_cast<int64_t>(size) < state.tokens[i] * bytes_per_token_) return false;
    }
    return true;
  }

  // Encodes and writes the next wave; returns false after the last one of the output.
  bool encode_wave() {
    const std::vector<TextSpan>& spans = outputs_[state_.output];
    const std::vector<TextChunk> wave = take_wave(spans, state_.place, merges_);
    std::vector<Encoded> encoded(wave.size());
    parallel_for(static_cast<int>(encoders_.size()), wave.size(), [&](int worker, size_t i) {
      encode_chunk(encoders_[static_cast<size_t>(worker)], wave[i].range, encoded[i]);
    });
    write_wave(encoded);
    for (const TextChunk& chunk : wave) done_bytes_ += chunk.range.end - chunk.range.begin;
    return state_.place.span < spans.size();
  }

  void encode_chunk(BpeEncoder& encoder, const TextRange& range, Encoded& encoded) const {
    std::vector<int32_t> document;
    std::vector<int32_t>& ids = encoded.ids;
    encoded.begins_document = range.begin == 0 || is_jsonl(range.file->path());
    const TextStart start = encoded.begins_document ? TextStart::OfDocument : TextStart::InDocument;
    visit_documents(range, options_.field, [&](std::string_view text, const TextOrigin& origin) {
      document.clear();
      encoder.encode(text, origin, document, start);
      if (document.empty()) return;
      if (!ids.empty() && end_) ids.push_back(*end_);
      ids.insert(ids.end(), document.begin(), document.end());
    });
  }

  void write_wave(const std::vector<Encoded>& wave) {
    std::string bytes;
    int64_t& tokens = state_.tokens[state_.output];
    for (const Encoded& chunk : wave) {
      if (chunk.ids.empty()) continue;
      if (chunk.begins_document && end_ && tokens > 0) {
        append_ids(std::span(&*end_, 1), bytes_per_token_, bytes);
        ++tokens;
      }
      append_ids(chunk.ids, bytes_per_token_, bytes);
      tokens += static_cast<int64_t>(chunk.ids.size());
    }
    writers_[state_.output].write(bytes);
  }

  void save_state() {
    for (OutputFile& writer : writers_) writer.sync();
    write_text_file(state_path_, state_text(state_, key_));
  }

  PrepareResult commit() {
    int64_t total = 0;
    for (const int64_t tokens : state_.tokens) total += tokens;
    const bool split = std::count(state_.tokens.begin(), state_.tokens.end(), 0) == 0;
    INPUT_CHECK(split, "the inputs hold ", total, total == 1 ? " token" : " tokens",
                ", too few to split into training and validation");
    PrepareResult result{.tokenizer = *options_.merges,
                         .train_tokens = state_.tokens[0],
                         .validation_tokens = total - state_.tokens[0],
                         .written = {},
                         .resumed = resumed_};
    OutputFile tokenizer(options_.output_folder + "/" + Tokenizer::kFileName);
    tokenizer.write(options_.merges->file_text());
    tokenizer.finish();
    std::vector<OutputFile> infos;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      writers_[i].finish();
      TokenFileInfo info{.tokens = state_.tokens[i],
                         .bytes_per_token = bytes_per_token_,
                         .tokenizer = refer_to(*options_.merges),
                         .source = options_.inputs};
      if (end_) info.end_token = *end_;
      infos.emplace_back(output_path(i) + ".json");
      infos.back().write(token_info_text(info));
      infos.back().finish();
    }
    const bool retired = retire_validation(options_.output_folder);
    if (retired && outputs_.size() == 1) result.removed = options_.output_folder + "/val.bin";
    tokenizer.commit();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      writers_[i].commit();
      infos[i].commit();
      result.written.push_back(output_path(i));
    }
    return result;
  }

  const PrepareOptions& options_;
  const BpeTokenizer& merges_;
  std::vector<SourceFile> files_;
  std::vector<std::vector<TextSpan>> outputs_;  // point into files_
  uint64_t key_;
  std::string state_path_;
  int64_t bytes_per_token_;
  ProgressBar bar_;
  std::optional<int32_t> end_;
  std::vector<BpeEncoder> encoders_;
  State state_;
  std::vector<OutputFile> writers_;
  bool started_ = false;
  bool resumed_ = false;
  int64_t done_bytes_ = 0;
};

}  // namespace

void remove_leftovers(const std::string& folder) {
  for (const char* name :
       {"train.bin", "train.bin.json", "val.bin", "val.bin.json", "tokenizer.json"}) {
    remove_partial(cat(folder, "/", name));
  }
  remove_state(cat(folder, "/", kStateFile));
}

bool retire_validation(const std::string& folder) {
  const std::string path = folder + "/val.bin";
  std::error_code error;
  const bool there = fs::remove(path, error);
  if (!error) fs::remove(path + ".json", error);  // without it val.bin would be misread
  if (error) {
    throw UserError(ExitCode::CannotWrite,
                    cat(path, ": cannot remove the output of an earlier run: ", error.message()));
  }
  return there;
}

PrepareResult prepare_merges(const PrepareOptions& options) {
  CHECK(options.merges && options.merges->kind() == TokenizerKind::Bpe, "no merges");
  return Preparation(options).run();
}

}  // namespace weft
