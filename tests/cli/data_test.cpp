// weft data: text to token files, and inspection of files in every layout.
#include <gtest/gtest.h>

#include "cli/workspace.h"
#include "support/read_file.h"
#include "support/token_bytes.h"

namespace weft {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
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

// Text, tokenizer, token files, weights and text again, with merges throughout.
TEST(Data, MergesFromTrainingToText) {
  const Workspace work;
  const ProcessResult trained =
      work.run_ok({"data", "train-tokenizer", kFixtureText, "--vocab-size", "300", "--output",
                   "tokenizer.json", "--threads", "2"});
  EXPECT_TRUE(contains(trained.output, "tokenizer bpe, 300 ids, ")) << trained.output;
  const ProcessResult prepared = work.run_ok({"data", "prepare", kFixtureText, "--output", "data",
                                              "--tokenizer", "tokenizer.json", "--threads", "2"});
  EXPECT_EQ(work.folder().read("data/tokenizer.json"), work.folder().read("tokenizer.json"));
  const auto info = nlohmann::json::parse(work.folder().read("data/train.bin.json"));
  EXPECT_EQ(info.at("vocab_size"), 300);
  EXPECT_EQ(info.at("end_token"), 299);
  EXPECT_EQ(info.at("tokenizer").at("kind"), "bpe");
  EXPECT_EQ(info.at("tokenizer").at("file"), "tokenizer.json");
  EXPECT_TRUE(contains(prepared.output, info.at("tokenizer").at("hash"))) << prepared.output;
  const std::string shown =
      work.run_ok({"data", "inspect", "data/train.bin", "--tokens", "20", "--samples", "2"}).output;
  const std::string text = read_file(kFixtureText);
  EXPECT_TRUE(contains(shown, "1 documents, id 299 between them\n")) << shown;
  EXPECT_TRUE(contains(shown, "begins with:\n" + text.substr(0, 20))) << shown;
  EXPECT_TRUE(contains(shown, "\nat ")) << shown;

  const ProcessResult run = work.train({"--training.steps=2"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_EQ(work.folder().read(work.saved("out") + "/tokenizer.json"),
            work.folder().read("tokenizer.json"));
  const auto config = nlohmann::json::parse(work.folder().read(work.saved("out") + "/config.json"));
  EXPECT_EQ(config.at("eos_token_id"), 299);
  const std::string generated = work.run_ok({"generate", "out", "--prompt", text.substr(0, 10),
                                             "--tokens", "8", "--seed", "1"})
                                    .output;
  EXPECT_EQ(generated.rfind(text.substr(0, 10), 0), 0U) << generated;

  // Data of another tokenizer does not match these weights.
  work.run_ok({"data", "prepare", kFixtureText, "--output", "data", "--tokenizer", "byte"});
  const ProcessResult mixed =
      work.train({"--checkpoint.initial_load_path=out", "--model.vocab_size=300"});
  EXPECT_EQ(mixed.exit_code, 65);
  EXPECT_TRUE(contains(mixed.errors,
                       "weft: data/train.bin: made with byte, 256 ids, 6828a99c1e3216ff, the "
                       "tokenizer of out/checkpoints/step-2 is bpe, 300 ids, "))
      << mixed.errors;
}

TEST(Data, SaysThatItRemovedOldValidationData) {
  const Workspace work;
  work.prepare_data();
  const std::string said = work.run_ok({"data", "prepare", kFixtureText, "--output", "data",
                                        "--validation-fraction", "0"})
                               .output;
  EXPECT_TRUE(contains(said, "removed data/val.bin, left by an earlier run\n")) << said;
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "data/val.bin"));
}

// A special token does not absorb what follows it.
TEST(Data, SpecialTokensComeOneByOne) {
  const Workspace work;
  work.folder().write("a.txt", "ab ab ab ab");
  work.run_ok({"data", "train-tokenizer", "--vocab-size", "260", "--output", "t.json", "--special",
               "<a>", "--special", "<b>", "a.txt"});
  const auto trained = nlohmann::json::parse(work.folder().read("t.json"));
  ASSERT_EQ(trained.at("added_tokens").size(), 2U);
  EXPECT_EQ(trained.at("added_tokens")[1].at("content"), "<b>");
  work.folder().write("x.tiktoken", "YQ== 0\nYg== 1\nIA== 2\n");
  work.run_ok({"data", "prepare", "--output", "data", "--tokenizer", "x.tiktoken", "--split",
               "o200k", "--special", "<|endoftext|>=7", "a.txt"});
  const auto written = nlohmann::json::parse(work.folder().read("data/tokenizer.json"));
  EXPECT_EQ(written.at("model").at("vocab").at("<|endoftext|>"), 7);
}

TEST(Data, TrainsOnAMixOfFiles) {
  const Workspace work;
  work.prepare_data();
  work.folder().write("bytes.txt", "other text");
  work.run_ok({"data", "prepare", "bytes.txt", "--output", "other", "--tokenizer", "byte"});
  const std::string two = "--training.dataset_mix=data/train.bin=3,data/val.bin=1";
  const ProcessResult mixed = work.train({"--training.dataset_path=", two, "--training.steps=2"});
  ASSERT_EQ(mixed.exit_code, 0) << mixed.errors;
  const ProcessResult refused = work.train(
      {"--training.dataset_path=", "--training.dataset_mix=data/train.bin=3,other/train.bin=1"});
  EXPECT_EQ(refused.exit_code, 65);
  EXPECT_EQ(refused.errors,
            "weft: other/train.bin: made with a different tokenizer than data/train.bin; prepare "
            "both the same way\n");
}

// A file without JSON says nothing about its ids; those with JSON are still compared.
TEST(Data, AFileOfUnknownIdsHidesNoMismatch) {
  const Workspace work;
  work.prepare_data();
  work.folder().write("nano.bin", work.folder().read("data/train.bin"));
  work.folder().write("bytes.txt", "other text, long enough for validation and for training");
  work.run_ok({"data", "prepare", "bytes.txt", "--output", "other", "--tokenizer", "byte"});
  const std::string mix = "--training.dataset_mix=nano.bin=1,data/train.bin=1";
  const std::string alike =
      ": made with a different tokenizer than data/train.bin; prepare both the same way\n";
  const ProcessResult good =
      work.train({"--training.dataset_path=", mix, "--training.steps=1", "--model.vocab_size=256"});
  ASSERT_EQ(good.exit_code, 0) << good.errors;
  const ProcessResult third = work.train({"--training.dataset_path=", mix + ",other/train.bin=1"});
  EXPECT_EQ(third.exit_code, 65);
  EXPECT_EQ(third.errors, "weft: other/train.bin" + alike);
  const ProcessResult validation =
      work.train({"--training.dataset_path=", mix, "--validation.dataset_path=other/train.bin",
                  "--model.vocab_size=256"});
  EXPECT_EQ(validation.exit_code, 65);
  EXPECT_EQ(validation.errors, "weft: other/train.bin" + alike);
  const ProcessResult weights =
      work.train({"--training.dataset_path=", "--training.dataset_mix=nano.bin=1,other/train.bin=1",
                  "--checkpoint.initial_load_path=out"});
  EXPECT_EQ(weights.exit_code, 65);
  EXPECT_TRUE(contains(weights.errors, "weft: other/train.bin: made with byte, 256 ids, "))
      << weights.errors;
}

// Documents without an end token between them cannot be separated.
TEST(Data, KeepsDocumentsApart) {
  const Workspace work;
  const std::string mask = "--training.document_mask=true";
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += R"({"text": "threads )" + std::to_string(i) + "\"}\n";
  work.folder().write("lines.jsonl", lines);
  work.run_ok({"data", "train-tokenizer", "lines.jsonl", "--vocab-size", "270", "--output",
               "tokenizer.json"});
  const std::vector<std::string> prepare = {"data", "prepare",     "lines.jsonl",   "--output",
                                            "data", "--tokenizer", "tokenizer.json"};
  work.run_ok(prepare);
  const ProcessResult plain = work.train({});
  const ProcessResult masked = work.train({mask});
  ASSERT_EQ(masked.exit_code, 0) << masked.errors;
  EXPECT_NE(masked.output, plain.output);

  std::vector<std::string> without = prepare;
  without.insert(without.end(), {"--end-token", "none"});
  work.run_ok(without);
  const ProcessResult refused = work.train({mask});
  EXPECT_EQ(refused.exit_code, 65);
  EXPECT_EQ(refused.errors,
            "weft: data/train.bin: no end token is recorded for it, expected one for "
            "training.document_mask = true; prepare the text with a tokenizer that has one, or set "
            "it with --end-token\n");
}

}  // namespace
}  // namespace weft
