// Preparing with merges: exact ids, documents, threads, and resuming after a kill.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "data/prepare.h"
#include "data/token_file.h"
#include "data/tokenizer_json.h"
#include "support/temp_folder.h"
#include "support/tiny_bpe.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Ids = std::vector<int64_t>;

const std::vector<std::string> kAllOutputs = {"tokenizer.json", "train.bin", "train.bin.json",
                                              "val.bin", "val.bin.json"};

class PrepareMerges : public testing::Test {
 protected:
  ~PrepareMerges() override { std::fclose(progress_); }

  PrepareOptions options(std::vector<std::string> inputs, double fraction = 0.0) {
    PrepareOptions options;
    options.inputs = std::move(inputs);
    options.output_folder = folder_ / "out";
    options.tokenizer = TokenizerKind::Bpe;
    options.merges = Tokenizer::bpe(bpe_from_json(tokenizer_json_text(tiny_bpe_parts()), "tiny"));
    options.end_token = "<|endoftext|>";
    options.validation_fraction = fraction;
    options.threads = 2;
    options.progress = {.stream = progress_, .live = false};
    return options;
  }

  Ids ids(const std::string& name) {
    const auto file = TokenFile::open(folder_ / ("out/" + name));
    Ids ids;
    for (int64_t i = 0; i < file.size(); ++i) ids.push_back(file.at(i));
    return ids;
  }

  // Text of about `size` bytes with words, digits, line ends and multi-byte characters.
  static std::string long_text(size_t size) {
    std::string text;
    for (uint32_t state = 7; text.size() < size;) {
      state = state * 1664525 + 1013904223;
      constexpr const char* kParts[] = {"abc", " ab", "bc ", "\n", " 12", "\xc3\xa9 ", ", ", "x"};
      text += kParts[state >> 29];
    }
    return text;
  }

  std::vector<std::string> output_names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void expect_error(ExitCode code, const std::string& message, const PrepareOptions& options) {
    expect_user_error(code, message, [&] { prepare(options); });
    EXPECT_FALSE(path_exists(folder_ / "out/train.bin"));
    EXPECT_TRUE(!path_exists(folder_ / "out") || std::filesystem::is_empty(folder_ / "out"));
  }

  TempFolder folder_;
  std::FILE* progress_ = std::tmpfile();
};

TEST_F(PrepareMerges, ValidationDataOfAnEarlierRunIsRemoved) {
  const std::string text = folder_.write("a.txt", long_text(2000));
  prepare(options({text}, 0.1));
  ASSERT_EQ(output_names(), kAllOutputs);
  const PrepareResult result = prepare(options({text}));
  EXPECT_EQ(result.removed, folder_ / "out/val.bin");
  EXPECT_EQ(output_names(),
            (std::vector<std::string>{"tokenizer.json", "train.bin", "train.bin.json"}));
}

TEST_F(PrepareMerges, DocumentsAreSeparatedByTheEndToken) {
  const auto result =
      prepare(options({folder_.write("a.txt", "abc ab"), folder_.write("b.txt", "bc")}));
  EXPECT_EQ(ids("train.bin"), (Ids{257, 259, 260, 258}));
  EXPECT_EQ(result.train_tokens, 4);
  EXPECT_EQ(result.written, (std::vector<std::string>{folder_ / "out/train.bin"}));
  const auto file = TokenFile::open(result.written[0]);
  EXPECT_EQ(file.info()->end_token, 260);
  EXPECT_EQ(file.tokenizer().identity(), result.tokenizer.identity());
  PrepareOptions none = options({folder_ / "a.txt", folder_ / "b.txt"});
  none.end_token = "";
  prepare(none);
  EXPECT_EQ(ids("train.bin"), (Ids{257, 259, 258}));
}

TEST_F(PrepareMerges, LinesOfJsonAreDocuments) {
  folder_.write(
      "a.jsonl",
      "{\"body\": \"abc\", \"n\": 1}\n\n{\"body\": \"\"}\n  {\"body\": \"\\u00e9\\nab\"}");
  PrepareOptions lines = options({folder_ / "a.jsonl"});
  lines.field = "body";
  prepare(lines);
  EXPECT_EQ(ids("train.bin"), (Ids{257, 260, 0xc3, 0xa9, '\n', 256}));
  lines.field = "text";
  std::filesystem::remove_all(folder_ / "out");
  expect_error(
      ExitCode::InputFile,
      cat(folder_ / "a.jsonl", ":1: \"text\" is missing; choose another field with --field"),
      lines);
  folder_.write("a.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"\n");
  expect_error(ExitCode::InputFile, cat(folder_ / "a.jsonl", ":3: malformed JSON at byte 10"),
               lines);
  folder_.write("a.jsonl", "{\"text\": 5}\n");
  expect_error(ExitCode::InputFile,
               cat(folder_ / "a.jsonl", ":1: \"text\" is a number, expected a string"), lines);
}

TEST_F(PrepareMerges, TheTextIsSplitAtItsShareOfBytes) {
  // 20 bytes, of which 17 train; the split moves to the next character and the next line.
  prepare(options({folder_.write("a.txt", "abc ab bc abc ab\xc3\xa9\xc3\xa9")}, 0.15));
  EXPECT_EQ(ids("train.bin"), (Ids{257, 259, ' ', 258, ' ', 257, 259, 0xc3, 0xa9}));
  EXPECT_EQ(ids("val.bin"), (Ids{0xc3, 0xa9}));
  const std::string line = "{\"text\": \"abc\"}\n";
  prepare(options({folder_.write("b.jsonl", line + line + line)}, 0.4));
  EXPECT_EQ(ids("train.bin"), (Ids{257, 260, 257}));
  EXPECT_EQ(ids("val.bin"), (Ids{257}));
}

TEST_F(PrepareMerges, TheNumberOfThreadsChangesNothing) {
  const std::string text = long_text(5 << 20);
  const std::vector<std::string> inputs = {folder_.write("a.txt", text),
                                           folder_.write("b.txt", text.substr(0, 3 << 20))};
  std::vector<std::string> outputs;
  for (const int64_t threads : {1, 3}) {
    PrepareOptions with = options(inputs, 0.1);
    with.threads = threads;
    prepare(with);
    outputs.push_back(folder_.read("out/train.bin") + folder_.read("out/val.bin"));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  // Splitting into chunks changes nothing: encoding the complete text in one call gives the same
  // ids.
  const std::vector<int32_t> full = encode_all(tiny_bpe_parts(), text + text.substr(0, 3 << 20));
  EXPECT_NEAR(static_cast<double>(outputs[0].size()) / 2, static_cast<double>(full.size()), 8);
}

// A document of several chunks gets one space; each line of .jsonl gets its own.
TEST_F(PrepareMerges, PutsASpaceBeforeDocuments) {
  std::string text;
  while (text.size() < (3U << 20)) text += "ab\n";
  PrepareOptions spaced = options({folder_.write("a.txt", text)});
  BpeParts parts = tiny_bpe_parts();
  parts.prefix_space = true;
  spaced.merges = Tokenizer::bpe(bpe_from_json(tokenizer_json_text(parts), "spaced"));
  prepare(spaced);
  const std::vector<int32_t> full = encode_all(parts, text);
  EXPECT_EQ(ids("train.bin"), Ids(full.begin(), full.end()));
  spaced.inputs = {
      folder_.write("b.jsonl", "{\"text\":\"ab\"}\n{\"text\":\" ab\"}\n{\"text\":\"c\"}")};
  prepare(spaced);
  EXPECT_EQ(ids("train.bin"), (Ids{259, 260, 259, 260, ' ', 'c'}));
}

TEST_F(PrepareMerges, ManyIdsNeed32Bits) {
  PrepareOptions wide = options({folder_.write("a.txt", "abc")});
  BpeParts parts = tiny_bpe_parts();
  parts.added.push_back({.id = 70000, .content = "<e>"});
  wide.merges = Tokenizer::bpe(bpe_from_json(tokenizer_json_text(parts), "wide"));
  prepare(wide);
  EXPECT_EQ(folder_.read("out/train.bin"), std::string("\x01\x01\0\0", 4));
  EXPECT_EQ(ids("train.bin"), (Ids{257}));
  EXPECT_EQ(TokenFile::open(folder_ / "out/train.bin").vocab_size(), 70001);
}

// The process is killed at its first progress line, when one wave is on disk.
TEST_F(PrepareMerges, AKilledRunIsResumed) {
  const std::string text = long_text(40 << 20);
  const std::string input = folder_.write("a.txt", text);
  const pid_t child = ::fork();
  if (child == 0) {
    const cookie_io_functions_t kill_on_write = {
        .read = nullptr,
        .write = [](void*, const char*, size_t) -> ssize_t { ::_exit(9); },
        .seek = nullptr,
        .close = nullptr};
    PrepareOptions killed = options({input}, 0.1);
    killed.progress.stream = ::fopencookie(nullptr, "w", kill_on_write);
    std::setvbuf(killed.progress.stream, nullptr, _IONBF, 0);
    prepare(killed);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 9);
  EXPECT_FALSE(path_exists(folder_ / "out/train.bin"));
  EXPECT_TRUE(path_exists(folder_ / "out/train.bin.partial"));
  const auto resumed = prepare(options({input}, 0.1));
  EXPECT_TRUE(resumed.resumed);
  const std::string train = folder_.read("out/train.bin");
  const std::string validation = folder_.read("out/val.bin");
  EXPECT_EQ(output_names(), kAllOutputs);
  std::filesystem::remove_all(folder_ / "out");
  EXPECT_FALSE(prepare(options({input}, 0.1)).resumed);
  EXPECT_EQ(folder_.read("out/train.bin"), train);
  EXPECT_EQ(folder_.read("out/val.bin"), validation);
}

// A run killed at any moment is resumed or restarted; the result is that of an uninterrupted run,
// with no leftovers.
TEST_F(PrepareMerges, KilledAtRandomMoments) {
  const std::string text = long_text(36 << 20);
  std::filesystem::create_directories(folder_ / "in");
  for (int i = 0; i < 100; ++i)
    folder_.write(cat("in/", i), long_text(1000 + 10 * static_cast<size_t>(i)));
  folder_.write("in/large", text);
  const PrepareOptions all = options({folder_ / "in"}, 0.05);
  const auto start = std::chrono::steady_clock::now();
  prepare(all);
  const std::chrono::duration<double> full = std::chrono::steady_clock::now() - start;
  const std::string train = folder_.read("out/train.bin");
  const std::string validation = folder_.read("out/val.bin");
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(cat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 3; ++round) {
    std::filesystem::remove_all(folder_ / "out");
    const double delay = full.count() * static_cast<double>(random() % 1000) / 1000;
    SCOPED_TRACE(cat("round ", round, ", killed after ", delay, " of ", full.count(), " s"));
    const pid_t child = ::fork();
    if (child == 0) {
      prepare(all);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(delay * 1e6));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    prepare(all);
    EXPECT_EQ(output_names(), kAllOutputs);
    EXPECT_TRUE(folder_.read("out/train.bin") == train);
    EXPECT_TRUE(folder_.read("out/val.bin") == validation);
  }
}

// Leftovers of a killed run of another kind are removed as well.
TEST_F(PrepareMerges, LeftoversAreRemoved) {
  folder_.write("a.txt", "abc ab abc ab");
  std::filesystem::create_directories(folder_ / "out");
  const auto leave = [&] {
    for (const std::string& name : kAllOutputs) folder_.write("out/" + name + ".partial", "x");
    folder_.write("out/prepare.partial.json", "x");
    folder_.write("out/prepare.partial.json.partial", "x");
  };
  leave();
  prepare(options({folder_ / "a.txt"}));
  EXPECT_EQ(output_names(),
            (std::vector<std::string>{"tokenizer.json", "train.bin", "train.bin.json"}));
  leave();
  PrepareOptions bytes = options({folder_ / "a.txt"}, 0.5);
  bytes.tokenizer = TokenizerKind::Byte;
  bytes.end_token = "";
  prepare(bytes);
  EXPECT_EQ(output_names(), kAllOutputs);
}

// Small files are processed together: there is no progress, and no wait for the disk, before all of
// them are done.
TEST_F(PrepareMerges, SmallFilesGoTogether) {
  std::filesystem::create_directories(folder_ / "in");
  Ids expected;
  for (int i = 100; i < 400; ++i) {
    folder_.write(cat("in/", i), i % 2 == 0 ? "abc ab" : "bc");
    if (i > 100) expected.push_back(260);
    if (i % 2 == 0) {
      expected.insert(expected.end(), {257, 259});
    } else {
      expected.push_back(258);
    }
  }
  prepare(options({folder_ / "in"}));
  EXPECT_EQ(ids("train.bin"), expected);
  std::rewind(progress_);
  char line[64];
  ASSERT_NE(std::fgets(line, sizeof line, progress_), nullptr);
  EXPECT_STREQ(line, "prepare: 100%\n");
}

TEST_F(PrepareMerges, AStateOfOtherInputsIsNotUsed) {
  folder_.write("a.txt", "abc ab");
  std::filesystem::create_directories(folder_ / "out");
  folder_.write("out/train.bin.partial", "rubbish");
  for (const char* state :
       {"{\"key\":\"0\"}", "no json", "{\"key\":\"0123456789abcdef\",\"output\":9}"}) {
    folder_.write("out/prepare.partial.json", state);
    EXPECT_FALSE(prepare(options({folder_ / "a.txt"})).resumed);
    EXPECT_EQ(ids("train.bin"), (Ids{257, 259}));
    EXPECT_FALSE(path_exists(folder_ / "out/prepare.partial.json"));
  }
}

TEST_F(PrepareMerges, BadInputsLeaveNothing) {
  expect_error(ExitCode::InputFile, cat(folder_ / "a.txt", ": invalid UTF-8 at byte 3"),
               options({folder_.write("a.txt", "abc\xff")}));
  expect_error(ExitCode::InputFile, cat(folder_ / "e.txt", ": file is empty"),
               options({folder_.write("e.txt", "")}));
  expect_error(ExitCode::InputFile,
               "the inputs hold 1 token, too few to split into training and validation",
               options({folder_.write("one.txt", "abc")}, 0.9));
  expect_error(ExitCode::InputFile,
               cat(folder_ / "w.txt",
                   ": word of more than 16777216 bytes at byte 1048576; this is not text"),
               options({folder_.write("w.txt", std::string(18 << 20, 'a'))}));
  PrepareOptions other = options({folder_.write("b.txt", "abc")});
  other.end_token = "<eos>";
  expect_error(ExitCode::Config,
               "command line: --end-token \"<eos>\" is not an added token of the tokenizer; give "
               "another one, or none",
               other);
}

TEST_F(PrepareMerges, AnotherTokenizerInTheFolderIsNoticed) {
  prepare(options({folder_.write("a.txt", "abc ab")}));
  BpeParts parts = tiny_bpe_parts();
  parts.merges.pop_back();
  folder_.write("out/tokenizer.json", tokenizer_json_text(parts));
  const auto file = TokenFile::open(folder_ / "out/train.bin");
  expect_user_error(
      ExitCode::InputFile,
      cat(folder_ / "out/tokenizer.json", ": tokenizer is ",
          tokenizer_identity(TokenizerKind::Bpe, 261, BpeTokenizer(parts).hash()),
          ", expected that of ", folder_ / "out/train.bin", ": ", file.info()->tokenizer.identity(),
          "; put the right file back or prepare the data again"),
      [&] { file.tokenizer(); });
}

}  // namespace
}  // namespace weft
