// Text to be tokenized: plain files, folders of them, and .jsonl files whose lines are objects with
// the text in one field. Files are mapped and looked at in pieces, so that they may be larger than
// memory.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/bpe_tokenizer.h"

namespace weft {

// The files that the inputs name: folders are walked in the order of paths, leaving out hidden and
// empty files and the folder `output`.
std::vector<std::string> list_text_files(const std::vector<std::string>& inputs,
                                         const std::string& output);

struct SourceFile {
  std::string path;
  int64_t size = 0;
  int64_t changed = 0;  // when, in the clock of the file system
};

// Looks at files that are there and not empty; anything else is a UserError.
std::vector<SourceFile> look_at_files(const std::vector<std::string>& paths);

// The bytes of all of them.
int64_t total_size(const std::vector<SourceFile>& files);

// A piece of a mapped file.
struct TextPiece {
  const MappedFile* file = nullptr;
  int64_t begin = 0;
  int64_t end = 0;

  std::string_view text() const;
};

// Whether the lines of a file are JSON, by the end of its name.
bool is_jsonl(const std::string& path);

// A line of .jsonl longer than this is refused: it is parsed whole.
inline constexpr int64_t kMaxLineBytes = int64_t{256} << 20;

// A document, or a part of one, with its place for messages.
using VisitText = std::function<void(std::string_view text, const TextOrigin& origin)>;

// Calls visit for every document of a piece: the piece itself, or the field of every line that is
// not blank; pieces of .jsonl begin and end with lines.
void visit_documents(const TextPiece& piece, const std::string& field, const VisitText& visit);

// The part of a piece that is `want` bytes long, or a bit more or less so that it can be tokenized
// on its own: cut where the tokenizer says, or after a line of .jsonl. A word or line that is too
// long is a UserError.
TextPiece take_front(const TextPiece& piece, int64_t want, const BpeTokenizer& tokenizer);

// A part of a file that is read from one end to the other.
struct TextSpan {
  const SourceFile* file = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

// How far spans have been read: up to `offset` in the file of one of them.
struct TextPlace {
  size_t span = 0;
  int64_t offset = 0;  // 0: at the beginning of the span
};

// A piece that can be tokenized on its own, and its file, which is open as long as the piece is.
struct TextChunk {
  std::shared_ptr<const MappedFile> file;
  TextPiece piece;
};

// A wave fills this many threads; chunks of small files are more and smaller.
inline constexpr int kWaveThreads = 32;

// The next chunks of the spans, of one or many files, which threads may work on at once; moves the
// place past them. None when all has been read. Depends on the files alone.
std::vector<TextChunk> take_wave(std::span<const TextSpan> spans, TextPlace& place,
                                 const BpeTokenizer& tokenizer);

// The first place at or after `at` where a file may be cut in two texts: before a character, or
// before a line of .jsonl.
int64_t place_to_split(const MappedFile& file, int64_t at);

}  // namespace weft
