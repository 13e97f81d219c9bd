// Character and byte tokenizers: two passes over mapped files, with a fixed-size output buffer.
#include "data/prepare.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "data/prepare_merges.h"
#include "data/text_source.h"
#include "data/token_file.h"
#include "data/utf8.h"

namespace weft {

namespace {

constexpr size_t kBuffer = size_t{1} << 20;
constexpr size_t kProgressBytes = size_t{1} << 20;

// Bytes processed over both passes.
class Progress {
 public:
  Progress(const std::vector<SourceFile>& files, const ProgressOptions& options)
      : bar_("prepare", 2 * total_size(files), options) {}
  // Reports that the current file has been read up to a byte.
  void reach(int64_t byte) { bar_.update(done_ + byte); }
  void finish_file(int64_t bytes) {
    reach(bytes);
    done_ += bytes;
  }

 private:
  ProgressBar bar_;
  int64_t done_ = 0;
};

// Calls visit(code point or byte) for every token of every document.
template <class Visit>
void walk(const std::vector<SourceFile>& files, const PrepareOptions& options, Progress& progress,
          Visit visit) {
  const auto walk_text = [&](std::string_view text, const TextOrigin& origin) {
    for (size_t at = 0; at < text.size();) {
      const size_t stop = std::min(at + kProgressBytes, text.size());
      while (at < stop) {
        if (options.tokenizer == TokenizerKind::Byte) {
          visit(static_cast<char32_t>(static_cast<unsigned char>(text[at++])));
        } else {
          const std::optional<char32_t> code_point = next_code_point(text, at);
          INPUT_CHECK(code_point, origin.where, ": invalid UTF-8 at byte ",
                      origin.offset + static_cast<int64_t>(at),
                      "; convert the file or use the byte tokenizer");
          visit(*code_point);
        }
      }
      progress.reach(origin.offset + static_cast<int64_t>(at));
    }
  };
  for (const SourceFile& source : files) {
    const MappedFile file = MappedFile::open(source.path);
    const auto size = static_cast<int64_t>(file.bytes().size());
    visit_documents({&file, 0, size}, options.field, walk_text);
    progress.finish_file(size);
  }
}

// A token file being written, and its JSON.
class TokenWriter {
 public:
  TokenWriter(const std::string& folder, const std::string& name)
      : path_(folder + "/" + name), tokens_(path_), info_(path_ + ".json") {
    buffer_.reserve(kBuffer);
  }

  void add(uint16_t token) {
    buffer_.push_back(static_cast<char>(token & 0xff));
    buffer_.push_back(static_cast<char>(token >> 8));
    if (buffer_.size() >= kBuffer) flush();
  }

  void finish(TokenFileInfo info) {
    flush();
    info.tokens = tokens_.size() / 2;
    info_.write(token_info_text(info));
    tokens_.finish();
    info_.finish();
  }

  void commit() {
    tokens_.commit();
    info_.commit();
  }

  const std::string& path() const { return path_; }

 private:
  void flush() {
    tokens_.write(buffer_);
    buffer_.clear();
  }

  std::string path_;
  OutputFile tokens_;
  OutputFile info_;
  std::string buffer_;
};

struct Survey {
  Tokenizer tokenizer;
  int64_t tokens;
};

// First pass: counts tokens and collects characters.
Survey survey(const std::vector<SourceFile>& files, const PrepareOptions& options,
              Progress& progress) {
  const TokenizerKind kind = options.tokenizer;
  int64_t tokens = 0;
  std::vector<bool> seen(kind == TokenizerKind::Char ? kMaxCodePoint + 1 : 256);
  walk(files, options, progress, [&](char32_t unit) {
    seen[unit] = true;
    ++tokens;
  });
  if (kind == TokenizerKind::Byte) return {Tokenizer::bytes(), tokens};
  std::vector<char32_t> vocabulary;
  for (char32_t unit = 0; unit <= kMaxCodePoint; ++unit) {
    if (seen[unit]) vocabulary.push_back(unit);
  }
  INPUT_CHECK(vocabulary.size() <= 65536, "the text has ", vocabulary.size(),
              " different characters, expected at most 65536; use the byte tokenizer");
  return {Tokenizer::characters(std::move(vocabulary)), tokens};
}

// Number of training tokens, computed as nanoGPT does: int(n * 0.9).
int64_t train_share(int64_t tokens, double validation_fraction) {
  const auto train =
      static_cast<int64_t>(static_cast<double>(tokens) * (1.0 - validation_fraction));
  const bool split = train > 0 && (train < tokens || validation_fraction == 0.0);
  INPUT_CHECK(split, "the inputs hold ", tokens, tokens == 1 ? " token" : " tokens",
              ", too few to split into training and validation");
  return train;
}

}  // namespace

PrepareResult prepare(const PrepareOptions& options) {
  const double fraction = options.validation_fraction;
  USER_CHECK(fraction >= 0.0 && fraction < 1.0, "command line: --validation-fraction ", fraction,
             " is out of range, expected 0 or more and below 1");
  if (options.tokenizer == TokenizerKind::Bpe) return prepare_merges(options);
  CHECK(options.end_token.empty(), name_of(options.tokenizer), options.end_token);
  const std::vector<SourceFile> files =
      look_at_files(list_text_files(options.inputs, options.output_folder));
  Progress progress(files, options.progress);
  const Survey text = survey(files, options, progress);
  const int64_t train_tokens = train_share(text.tokens, fraction);

  make_directories(options.output_folder);
  std::vector<TokenWriter> writers;
  writers.reserve(2);
  writers.emplace_back(options.output_folder, "train.bin");
  if (train_tokens < text.tokens) writers.emplace_back(options.output_folder, "val.bin");
  remove_leftovers(options.output_folder);
  int64_t position = 0;
  walk(files, options, progress, [&](char32_t unit) {
    const int32_t id = options.tokenizer == TokenizerKind::Byte ? static_cast<int32_t>(unit)
                                                                : text.tokenizer.id_of(unit);
    INPUT_CHECK(id >= 0 && position < text.tokens,
                "an input changed while it was read; prepare again");
    writers[position < train_tokens ? 0 : 1].add(static_cast<uint16_t>(id));
    ++position;
  });
  INPUT_CHECK(position == text.tokens, "an input changed while it was read; prepare again");

  PrepareResult result{.tokenizer = text.tokenizer,
                       .train_tokens = train_tokens,
                       .validation_tokens = text.tokens - train_tokens,
                       .written = {}};
  const TokenFileInfo info{.tokenizer = refer_to(text.tokenizer), .source = options.inputs};
  for (TokenWriter& writer : writers) writer.finish(info);
  const bool retired = retire_validation(options.output_folder);
  if (retired && writers.size() == 1) result.removed = options.output_folder + "/val.bin";
  for (TokenWriter& writer : writers) {
    writer.commit();
    result.written.push_back(writer.path());
  }
  return result;
}

}  // namespace weft
