// Micro-batches of a run's data: created ahead of time or not, wrapped around, positions within
// documents. The CLI tests cover what is rejected.
#include "train/training_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "config/load.h"
#include "support/temp_folder.h"
#include "support/token_bytes.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

// Ten 16-bit tokens of a byte tokenizer; 3 ends a document.
std::string write_tokens(const TempFolder& folder, const std::string& name) {
  std::string path = folder.write(name, raw<uint16_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  folder.write(
      name + ".json",
      token_info_text({.tokens = 10, .tokenizer = refer_to(Tokenizer::bytes()), .end_token = 3}));
  return path;
}

Config config_of(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"--training.local_batch_size=2", "--training.seq_len=4"});
  return parse_config("", "test", overrides);
}

Config config_of_file(const std::string& path, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(),
                   {"--training.dataset=file", "--training.dataset_path=" + path});
  return config_of(std::move(overrides));
}

TrainingData open_data(const Config& config) {
  return {config, open_training_files(config), 256};
}

Batch batch_of(const TrainingData& data, int64_t step, int64_t first_sample) {
  Batch batch;
  data.fill(step, first_sample, batch);
  return batch;
}

TEST(TrainingData, BatchesAheadAreThoseMadeInTime) {
  const TrainingData data = open_data(config_of({}));
  BatchPrefetcher ahead(data, {0, 4, 2});
  Batch found;
  for (int64_t step = 0; step < 20; ++step) {
    for (const int64_t first : {0, 4, 2}) {
      ahead.take(found);
      const Batch expected = batch_of(data, step, first);
      EXPECT_EQ(found.tokens, expected.tokens) << step << " " << first;
      EXPECT_EQ(found.targets, expected.targets) << step << " " << first;
    }
  }
  EXPECT_NE(batch_of(data, 0, 0).tokens, batch_of(data, 0, 2).tokens);
  EXPECT_NE(batch_of(data, 0, 0).tokens, batch_of(data, 1, 0).tokens);
}

// Whether none, some or all of its batches are taken. Runs in a separate process, which an alarm
// ends if it hangs.
TEST(TrainingDataDeathTest, BatchesAheadEndAtAnyTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_and_end = [](int taken) {
    ::alarm(60);
    {
      const TrainingData data = open_data(config_of({}));
      BatchPrefetcher ahead(data, {0, 2});
      Batch batch;
      for (int i = 0; i < taken; ++i) ahead.take(batch);
    }
    std::fputs("ended", stderr);
    std::exit(0);
  };
  for (int taken = 0; taken < 5; ++taken) {
    ASSERT_EXIT(make_and_end(taken), testing::ExitedWithCode(0), "ended") << taken;
  }
}

// The thread's error is thrown to the taker, as often as it asks.
TEST(TrainingData, AFailureWhileMakingABatchIsCarriedOver) {
  Config config = config_of({});
  config.training.seq_len = int64_t{1} << 60;  // more tokens than a vector can hold
  const TrainingData data = open_data(config);
  BatchPrefetcher ahead(data, {0});
  Batch batch;
  EXPECT_THROW(ahead.take(batch), std::length_error);
  EXPECT_THROW(ahead.take(batch), std::length_error);
}

TEST(TrainingData, ValidationWindowsWrapAround) {
  const TempFolder folder;
  const std::string path = write_tokens(folder, "t.bin");
  const TrainingData data = open_data(
      config_of_file(path, {"--validation.enable=true", "--validation.dataset_path=" + path}));
  ASSERT_TRUE(data.has_validation());
  EXPECT_EQ(data.validation_batch(0).tokens, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(data.validation_batch(1).tokens, (Ids{4, 5, 6, 7, 0, 1, 2, 3}));
  EXPECT_EQ(data.validation_batch(1).targets, (Ids{5, 6, 7, 8, 1, 2, 3, 4}));
  EXPECT_TRUE(data.validation_batch(0).positions.empty());
}

TEST(TrainingData, PositionsAreThoseInDocuments) {
  const TempFolder folder;
  const std::string path = write_tokens(folder, "t.bin");
  const TrainingData data =
      open_data(config_of_file(path, {"--training.document_mask=true", "--validation.enable=true",
                                      "--validation.dataset_path=" + path}));
  EXPECT_EQ(data.validation_batch(0).positions, (Ids{0, 1, 2, 3, 0, 1, 2, 3}));
  const Batch batch = batch_of(data, 0, 0);
  EXPECT_EQ(batch.positions, document_positions(batch.tokens, 4, 3));
}

TEST(TrainingData, TheTokenizerIsReadWhereWeightsAreSaved) {
  const TempFolder folder;
  const std::string path = write_tokens(folder, "t.bin");
  const TrainingData saved = open_data(config_of_file(path));
  ASSERT_TRUE(saved.tokenizer());
  EXPECT_EQ(saved.tokenizer()->identity(), Tokenizer::bytes().identity());
  EXPECT_FALSE(open_data(config_of_file(path, {"--checkpoint.enable=false"})).tokenizer());
  EXPECT_FALSE(open_data(config_of({})).tokenizer());
}

TEST(TrainingData, TheVocabularyIsAskedForOnlyWhereTheModelTakesIt) {
  const TempFolder folder;
  EXPECT_EQ(data_vocabulary(config_of_file(folder / "absent.bin")), 0);
  const Config config = config_of_file(write_tokens(folder, "t.bin"), {"--model.vocab_size=-1"});
  EXPECT_EQ(data_vocabulary(config), 256);
}

// A run uses the files that it has open, and opens none a second time.
TEST(TrainingData, OpenFilesKnowTheirVocabulary) {
  const TempFolder folder;
  const std::string path = write_tokens(folder, "t.bin");
  const std::string nameless = folder.write("n.bin", raw<uint16_t>({0, 1}));
  const std::vector<WeightedFile> both = open_training_files(config_of(
      {"--training.dataset=file", "--training.dataset_mix=" + nameless + "=1," + path + "=1"}));
  const std::vector<WeightedFile> one = open_training_files(config_of_file(nameless));
  for (const std::string& file : {path, path + ".json", nameless}) std::filesystem::remove(file);
  EXPECT_EQ(data_vocabulary(both), 256);
  EXPECT_EQ(data_vocabulary(one), 0);
  EXPECT_EQ(data_vocabulary(open_training_files(config_of({}))), 0);
}

}  // namespace
}  // namespace weft
