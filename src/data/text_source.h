// Text to be tokenized: plain files, folders of them, and .jsonl files whose lines are objects with
// the text in one field. Files are mapped and processed in slices, so they may be larger than
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

// The files that the inputs name. Folders are traversed in path order, skipping hidden files, empty
// files and the folder `output`.
std::vector<std::string> list_text_files(const std::vector<std::string>& inputs,
                                         const std::string& output);

struct SourceFile {
  std::string path;
  int64_t size = 0;
  int64_t changed = 0;  // modification time, in file system clock units
};

// Size and time of existing, non-empty files; anything else is a UserError.
std::vector<SourceFile> look_at_files(const std::vector<std::string>& paths);

// Total bytes of all files.
int64_t total_size(const std::vector<SourceFile>& files);

// A slice of a mapped file.
struct TextRange {
  const MappedFile* file = nullptr;
  int64_t begin = 0;
  int64_t end = 0;

  std::string_view text() const;
};

// Whether the lines of a file are JSON, by its extension.
bool is_jsonl(const std::string& path);

// A longer line of .jsonl is rejected: each line is parsed as a unit.
inline constexpr int64_t kMaxLineBytes = int64_t{256} << 20;

// A document, or part of one, with its origin for messages.
using VisitText = std::function<void(std::string_view text, const TextOrigin& origin)>;

// Calls visit for every document of a slice: the slice itself, or the field of every non-blank
// line. Slices of .jsonl consist of complete lines.
void visit_documents(const TextRange& range, const std::string& field, const VisitText& visit);

// The first part of a slice, about `want` bytes long, that can be tokenized on its own: it ends
// where the tokenizer allows a split, or after a line of .jsonl. A word or line that is too long is
// a UserError.
TextRange take_front(const TextRange& range, int64_t want, const BpeTokenizer& tokenizer);

// A part of a file that is read sequentially.
struct TextSpan {
  const SourceFile* file = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

// How far the spans have been read: up to `offset` in the file of one of them.
struct TextPlace {
  size_t span = 0;
  int64_t offset = 0;  // 0: at the start of the span
};

// A slice that can be tokenized on its own, and its file, which stays open as long as the slice.
struct TextChunk {
  std::shared_ptr<const MappedFile> file;
  TextRange range;
};

// A wave keeps this many threads busy; small files give more and smaller chunks.
inline constexpr int kWaveThreads = 32;

// The next chunks of the spans, from one or many files, for threads to process in parallel;
// advances `place` past them. Empty at the end. Depends only on the files.
std::vector<TextChunk> take_wave(std::span<const TextSpan> spans, TextPlace& place,
                                 const BpeTokenizer& tokenizer);

// The first position at or after `at` where a file may be split into two texts: before a character,
// or before a line of .jsonl.
int64_t place_to_split(const MappedFile& file, int64_t at);

}  // namespace weft
