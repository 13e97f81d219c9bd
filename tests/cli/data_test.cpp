// weft data: text to token files, and a look into files of every layout.
#include <gtest/gtest.h>

#include <cstring>

#include "cli/workspace.h"

namespace weft {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A header of llm.c: 256 numbers.
std::string header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> numbers(256);
  numbers[0] = magic;
  numbers[1] = version;
  numbers[2] = tokens;
  return raw(numbers);
}

TEST(Data, PreparesCharactersInTheOrderOfTheText) {
  const Workspace work;
  work.folder().write("text.txt", "abcabcabca");
  work.run_ok({"data", "prepare", "text.txt", "--output", "data"});
  EXPECT_EQ(work.folder().read("data/train.bin"), raw<uint16_t>({0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(work.folder().read("data/val.bin"), raw<uint16_t>({0}));
  const auto info = nlohmann::json::parse(work.folder().read("data/train.bin.json"));
  EXPECT_EQ(info.at("tokens"), 9);
  EXPECT_EQ(info.at("vocab_size"), 3);
  EXPECT_EQ(info.at("tokenizer").at("vocab"), "abc");
  const ProcessResult shown = work.run_ok({"data", "inspect", "data/train.bin", "--tokens", "4"});
  EXPECT_TRUE(contains(shown.output, "9 tokens of 2 bytes")) << shown.output;
  EXPECT_TRUE(contains(shown.output, "largest id 2 at 2")) << shown.output;
  EXPECT_TRUE(contains(shown.output, "begins with:\nabca\n")) << shown.output;
}

TEST(Data, PreparesBytesOfSeveralInputs) {
  const Workspace work;
  work.folder().write("a.txt", "\xff\x01");
  work.folder().write("b.txt", "AB");
  work.run_ok({"data", "prepare", "a.txt", "b.txt", "--output", "data", "--tokenizer", "byte",
               "--validation-fraction", "0"});
  EXPECT_EQ(work.folder().read("data/train.bin"), raw<uint16_t>({255, 1, 65, 66}));
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "data/val.bin"));
}

TEST(Data, TwoPreparationsAreTheSameBytes) {
  const Workspace work;
  work.prepare_data();
  work.run_ok({"data", "prepare", kFixtureText, "--output", "again"});
  for (const char* name : {"train.bin", "train.bin.json", "val.bin", "val.bin.json"}) {
    EXPECT_EQ(work.folder().read(std::string("data/") + name),
              work.folder().read(std::string("again/") + name));
  }
}

TEST(Data, InspectsFilesOfOthers) {
  const Workspace work;
  work.folder().write("nano.bin", raw<uint16_t>({7, 50000, 3}));
  work.folder().write("gpt2.bin", header(20240520, 1, 2) + raw<uint16_t>({9, 8}));
  work.folder().write("llama3.bin", header(20240801, 7, 2) + raw<uint32_t>({100000, 8}));
  work.folder().write("none.bin", header(20240520, 1, 0));
  EXPECT_TRUE(contains(work.run_ok({"data", "inspect", "nano.bin"}).output, "\n7 50000 3\n"));
  EXPECT_TRUE(contains(work.run_ok({"data", "inspect", "gpt2.bin"}).output, "\n9 8\n"));
  const std::string wide = work.run_ok({"data", "inspect", "llama3.bin"}).output;
  EXPECT_TRUE(contains(wide, "2 tokens of 4 bytes")) << wide;
  EXPECT_TRUE(contains(wide, "largest id 100000 at 0")) << wide;
  EXPECT_EQ(work.run_ok({"data", "inspect", "none.bin"}).output, "none.bin: 0 tokens of 2 bytes\n");
}

TEST(Data, TrainsOnFilesOfOthersAsTheyAre) {
  const Workspace work;
  std::vector<uint16_t> ids(400);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint16_t>(i * i % 50);
  work.folder().write("nano.bin", raw(ids));
  work.folder().write("llmc.bin", header(20240520, 1, 400) + raw(ids));
  std::vector<std::vector<double>> losses;
  std::string config = kSmallConfig;
  config.resize(config.find("[validation]"));
  work.folder().write("run.toml", config);
  for (const char* file : {"nano.bin", "llmc.bin"}) {
    const ProcessResult result = work.train({std::string("--training.dataset_path=") + file,
                                             "--model.vocab_size=50", "--training.steps=2"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    losses.push_back(work.figures("out/metrics.jsonl", "loss"));
  }
  EXPECT_EQ(losses[0].size(), 2U);
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace weft
