// Micro-batches of a run's data: ahead of time or not, wrapped around, placed in documents. What is
// refused stands in the tests of the command.
#include "train/training_data.h"

#include <gtest/gtest.h>

#include "config/load.h"
#include "support/temp_folder.h"
#include "support/token_bytes.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

// Ten 16-bit tokens of a tokenizer of bytes; 3 ends a document.
std::string write_tokens(const TempFolder& folder, const std::string& name) {
  const std::string path = folder.write(name, raw<uint16_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
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

TEST(TrainingData, BatchesAheadAreThoseMadeInTime) {
  const TrainingData data = open_data(config_of({}));
  BatchesAhead ahead(data);
  // Two slots in turns, a step left out, and one again.
  for (const auto& [step, first] :
       {std::pair<int64_t, int64_t>(0, 0), {0, 2}, {1, 0}, {1, 2}, {3, 0}, {3, 0}, {4, 0}}) {
    const Batch found = ahead.take(step, first);
    const Batch expected = data.batch(step, first);
    EXPECT_EQ(found.tokens, expected.tokens) << step << " " << first;
    EXPECT_EQ(found.targets, expected.targets) << step << " " << first;
  }
  EXPECT_NE(data.batch(0, 0).tokens, data.batch(0, 2).tokens);
  EXPECT_NE(data.batch(0, 0).tokens, data.batch(1, 0).tokens);
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
  const Batch batch = data.batch(0, 0);
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

}  // namespace
}  // namespace weft
