// Lists files, and splits them into documents and slices.
#include "data/text_source.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace weft {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr int64_t kWaveBytes = kWaveThreads * kChunkBytes;
// Each chunk may hold a map open, and a process may have about 65000 maps.
constexpr size_t kWaveChunks = 4096;

void add_folder(const fs::path& folder, const fs::path& output, std::vector<std::string>& files) {
  std::error_code error;
  fs::recursive_directory_iterator walk_folder(folder, error);
  INPUT_CHECK(!error, folder.string(), ": cannot read the folder: ", error.message());
  std::vector<std::string> found;
  for (auto entry = begin(walk_folder); entry != end(walk_folder); entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    std::error_code ignored;
    const bool is_output = fs::equivalent(entry->path(), output, ignored);
    if (entry->is_directory(ignored)) {
      if (hidden || is_output) entry.disable_recursion_pending();
    } else if (!hidden && entry->is_regular_file(ignored) && entry->file_size(ignored) > 0) {
      found.push_back(entry->path().string());
    }
  }
  INPUT_CHECK(!error, folder.string(), ": cannot read the folder: ", error.message());
  INPUT_CHECK(!found.empty(), folder.string(), ": the folder holds no text files");
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// "path:line" of a byte.
std::string line_name(const MappedFile& file, int64_t at) {
  const std::string_view before = text_of(file).substr(0, static_cast<size_t>(at));
  return cat(file.path(), ":", 1 + std::count(before.begin(), before.end(), '\n'));
}

// The text of one line. Lines are counted only for messages.
std::string field_of(std::string_view line, const std::string& field, const MappedFile& file,
                     int64_t at) {
  try {
    const nlohmann::json object = parse_json(line, "");
    INPUT_CHECK(!object.is_object() || object.contains(field), ": \"", field,
                "\" is missing; choose another field with --field");
    return json_string(object, field, "");
  } catch (const UserError& error) {
    std::string what = error.what();
    if (what.starts_with(":1:")) what.erase(0, 2);
    throw UserError(error.code(), line_name(file, at) + what);
  }
}

}  // namespace

std::vector<std::string> list_text_files(const std::vector<std::string>& inputs,
                                         const std::string& output) {
  USER_CHECK(!inputs.empty(), "no input given, expected text files or folders");
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    const bool same = fs::equivalent(input, output, ignored);
    USER_CHECK(!same, input, ": is an input and the output folder; choose another output folder");
    if (fs::is_directory(input, ignored)) {
      add_folder(input, output, files);
    } else {
      files.push_back(input);
    }
  }
  return files;
}

std::vector<SourceFile> look_at_files(const std::vector<std::string>& paths) {
  std::vector<SourceFile> files;
  for (const std::string& path : paths) {
    // Opened so that an unreadable file gives the usual message.
    const MappedFile file = MappedFile::open(path);
    const auto changed = fs::last_write_time(path).time_since_epoch().count();
    files.push_back(
        {path, static_cast<int64_t>(file.bytes().size()), static_cast<int64_t>(changed)});
  }
  return files;
}

int64_t total_size(const std::vector<SourceFile>& files) {
  int64_t total = 0;
  for (const SourceFile& file : files) total += file.size;
  return total;
}

std::string_view TextRange::text() const {
  return text_of(*file).substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

bool is_jsonl(const std::string& path) {
  return path.ends_with(".jsonl");
}

void visit_documents(const TextRange& range, const std::string& field, const VisitText& visit) {
  const MappedFile& file = *range.file;
  if (!is_jsonl(file.path())) {
    visit(range.text(), {file.path(), range.begin});
    return;
  }
  const std::string_view lines = range.text();
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = lines.substr(at, end - at);
    const int64_t begin = range.begin + static_cast<int64_t>(at);
    INPUT_CHECK(static_cast<int64_t>(line.size()) <= kMaxLineBytes, line_name(file, begin),
                ": line has ", line.size(), " bytes, expected at most ", kMaxLineBytes,
                "; split the document");
    if (!trim(line).empty()) {
      const std::string text = field_of(line, field, file, begin);
      visit(text, {file.path(), begin});
    }
    at = end + 1;
  }
}

TextRange take_front(const TextRange& range, int64_t want, const BpeTokenizer& tokenizer) {
  const MappedFile& file = *range.file;
  const std::string_view text = range.text();
  const auto front = static_cast<size_t>(want);
  if (front >= text.size()) return range;
  const auto part = [&](size_t size) {
    return TextRange{&file, range.begin, range.begin + static_cast<int64_t>(size)};
  };
  if (is_jsonl(file.path())) {
    // Also catches a line that is too long, before gigabytes are searched for its end.
    const std::string_view window = text.substr(0, front + static_cast<size_t>(kMaxLineBytes));
    const size_t end = window.find('\n', front - 1);
    INPUT_CHECK(end != std::string_view::npos || window.size() == text.size(),
                line_name(file, range.begin + want), ": line has more than ", kMaxLineBytes,
                " bytes; split the document");
    return part(end == std::string_view::npos ? text.size() : end + 1);
  }
  const std::string_view window = text.substr(0, front + kMaxWordBytes);
  const size_t split = tokenizer.split(window, front);
  if (split == window.size() && split < text.size())
    throw_long_word({file.path(), range.begin + want});
  return part(split);
}

std::vector<TextChunk> take_wave(std::span<const TextSpan> spans, TextPlace& place,
                                 const BpeTokenizer& tokenizer) {
  std::vector<TextChunk> wave;
  int64_t bytes = 0;
  const auto is_full = [&] { return bytes >= kWaveBytes || wave.size() >= kWaveChunks; };
  while (place.span < spans.size() && !is_full()) {
    const TextSpan& span = spans[place.span];
    const auto file = std::make_shared<const MappedFile>(MappedFile::open(span.file->path));
    INPUT_CHECK(static_cast<int64_t>(file->bytes().size()) == span.file->size, file->path(),
                ": the file changed while it was read; start again");
    TextRange rest{file.get(), std::max(place.offset, span.begin), span.end};
    while (rest.begin < rest.end && !is_full()) {
      const TextRange range = take_front(rest, kChunkBytes, tokenizer);
      wave.push_back({file, range});
      bytes += range.end - range.begin;
      rest.begin = range.end;
    }
    const bool done = rest.begin == rest.end;
    place = done ? TextPlace{place.span + 1, 0} : TextPlace{place.span, rest.begin};
  }
  return wave;
}

int64_t place_to_split(const MappedFile& file, int64_t at) {
  const std::string_view text = text_of(file);
  auto place = static_cast<size_t>(at);
  if (place == 0 || place >= text.size()) return at;
  if (is_jsonl(file.path())) {
    const size_t end = text.find('\n', place - 1);
    return static_cast<int64_t>(end == std::string_view::npos ? text.size() : end + 1);
  }
  while (place < text.size() && (text[place] & 0xc0) == 0x80) ++place;
  return static_cast<int64_t>(place);
}

}  // namespace weft
