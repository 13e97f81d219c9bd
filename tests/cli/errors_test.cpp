// Runs tests/golden/errors/cli/*.txt. A case is a sentence, the files it needs, a command line, and
// the exit code and message that the user must see; nothing may be left behind. Its parts:
//   --- file NAME         text
//   --- bytes NAME        bytes in hexadecimal; "00*12" repeats one
//   --- safetensors NAME  a line of JSON, prefixed with its length, then bytes as above
//   --- folder NAME
//   --- command           arguments of weft, split at blanks; '...' keeps them together
//   --- error CODE        what standard error shows
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "cli/workspace.h"
#include "support/golden.h"
#include "support/golden_files.h"
#include "support/read_file.h"

namespace weft {
namespace {

const std::string kFolder = WEFT_TESTS_DIR "/golden/errors/cli/";

struct Part {
  std::string kind;  // empty for the sentence
  std::string name;
  std::string text;
};

std::vector<Part> read_parts(const std::string& path) {
  std::ifstream in(path);
  std::vector<Part> parts(1);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("--- ")) {
      const std::vector<std::string> words = split(line, ' ');
      parts.push_back({words.at(1), words.size() > 2 ? words[2] : "", ""});
    } else {
      parts.back().text += line + "\n";
    }
  }
  return parts;
}

std::string from_hex(const std::string& text) {
  std::string bytes;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t star = word.find('*');
    const int64_t times = star == std::string::npos ? 1 : parse_int(word.substr(star + 1)).value();
    const auto byte = static_cast<char>(std::stoi(word.substr(0, 2), nullptr, 16));
    bytes.append(static_cast<size_t>(times), byte);
  }
  return bytes;
}

std::string safetensors(const std::string& text) {
  const size_t end = text.find('\n');
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((uint64_t{end} >> (8 * i)) & 0xff);
  return bytes + text.substr(0, end) + from_hex(text.substr(end));
}

std::vector<std::string> arguments_of(const std::string& text) {
  std::vector<std::string> arguments;
  bool quoted = false;
  bool open = false;
  for (const char c : text) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (!quoted && (c == ' ' || c == '\n')) {
      open = false;
      continue;
    }
    if (!open) arguments.emplace_back();
    open = true;
    if (c != '\'') arguments.back() += c;
  }
  return arguments;
}

void make(const TempFolder& folder, const Part& part) {
  const std::filesystem::path path = folder / part.name;
  std::filesystem::create_directories(part.kind == "folder" ? path : path.parent_path());
  if (part.kind == "file") folder.write(part.name, part.text);
  if (part.kind == "bytes") folder.write(part.name, from_hex(part.text));
  if (part.kind == "safetensors") folder.write(part.name, safetensors(part.text));
}

class CliError : public testing::TestWithParam<std::string> {};

TEST_P(CliError, SaysWhatTheGoldenFileSays) {
  const std::string path = kFolder + GetParam() + ".txt";
  const std::vector<Part> parts = read_parts(path);
  ASSERT_TRUE(trim(parts.front().text).ends_with('.')) << "the file must start with a sentence";
  const Part& error = parts.back();
  ASSERT_EQ(error.kind, "error");

  const Workspace work;
  std::vector<std::string> command;
  for (const Part& part : parts) {
    if (part.kind == "command") {
      command = arguments_of(part.text);
    } else if (!part.kind.empty() && part.kind != "error") {
      make(work.folder(), part);
    }
  }
  const auto before = work.tree();
  const ProcessResult result = work.run(command);
  EXPECT_EQ(cat(result.exit_code), error.name);
  EXPECT_EQ(work.tree(), before) << "something was left behind";
  EXPECT_LT(result.peak_bytes, int64_t{200} << 20) << "memory was taken before the check";

  const std::string text = result.errors;
  const std::string golden = read_file(path);
  const size_t head = golden.rfind("--- error ");
  expect_golden("errors/cli/" + GetParam() + ".txt",
                cat(golden.substr(0, head), "--- error ", result.exit_code, "\n", text));
}

INSTANTIATE_TEST_SUITE_P(Golden, CliError, testing::ValuesIn(golden_names("errors/cli", ".txt")),
                         [](const auto& golden) { return golden.param; });

}  // namespace
}  // namespace weft
