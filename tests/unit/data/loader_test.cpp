// Batches: pure functions of their spec, windows of the file, even coverage.
#include "data/loader.h"

#include <gtest/gtest.h>

#include <set>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

struct Batch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  bool operator==(const Batch&) const = default;
};

Batch batch_of(const TokenSource& source, const BatchSpec& spec) {
  const auto size = static_cast<size_t>(spec.count * spec.seq_len);
  Batch batch{std::vector<int32_t>(size, -1), std::vector<int32_t>(size, -1)};
  source.batch(spec, batch.tokens.data(), batch.targets.data());
  return batch;
}

Batch validation_of(const TokenSource& source, const ValidationSpec& spec) {
  const auto size = static_cast<size_t>(spec.count * spec.seq_len);
  Batch batch{std::vector<int32_t>(size, -1), std::vector<int32_t>(size, -1)};
  source.validation_batch(spec, batch.tokens.data(), batch.targets.data());
  return batch;
}

// A file in which token i has id i.
TokenFile counting_file(const TempFolder& folder, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(i & 0xff);
    bytes += static_cast<char>(i >> 8);
  }
  return TokenFile::open(folder.write("t.bin", bytes));
}

std::vector<TokenSource> both_sources(const TempFolder& folder) {
  std::vector<TokenSource> sources;
  sources.push_back(TokenSource::synthetic(1000));
  sources.push_back(TokenSource::file(counting_file(folder, 1000), 8, 1000));
  return sources;
}

TEST(Loader, ABatchDoesNotDependOnHowItIsSharded) {
  const TempFolder folder;
  for (const TokenSource& source : both_sources(folder)) {
    const BatchSpec full{.seed = 3, .step = 5, .first_sample = 0, .count = 6, .seq_len = 8};
    const Batch all = batch_of(source, full);
    EXPECT_EQ(batch_of(source, full), all);
    Batch batches;
    for (int64_t first = 0; first < 6; first += 2) {
      BatchSpec part = full;
      part.first_sample = first;
      part.count = 2;
      const Batch chunk = batch_of(source, part);
      batches.tokens.insert(batches.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
      batches.targets.insert(batches.targets.end(), chunk.targets.begin(), chunk.targets.end());
    }
    EXPECT_EQ(batches, all);
  }
}

TEST(Loader, SeedStepAndSampleAllMatter) {
  const TempFolder folder;
  for (const TokenSource& source : both_sources(folder)) {
    std::set<std::vector<int32_t>> seen;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      for (int64_t step = 0; step < 3; ++step) {
        for (int64_t sample = 0; sample < 3; ++sample) {
          seen.insert(batch_of(source, {seed, step, sample, 1, 8}).tokens);
        }
      }
    }
    // Of 27 windows at 992 positions two may coincide; synthetic ones never do.
    EXPECT_GE(seen.size(), 25u);
  }
}

TEST(Loader, TargetsAreTheWindowOneFurther) {
  const TempFolder folder;
  for (const TokenSource& source : both_sources(folder)) {
    const Batch batch = batch_of(source, {1, 0, 0, 4, 8});
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      if (i % 8 != 7) {
        EXPECT_EQ(batch.targets[i], batch.tokens[i + 1]);
      }
      EXPECT_GE(batch.tokens[i], 0);
      EXPECT_LT(batch.targets[i], 1000);
    }
  }
}

TEST(Loader, WindowsStartEverywhereInTheFile) {
  const TempFolder folder;
  const auto source = TokenSource::file(counting_file(folder, 12), 8, 12);
  std::set<int32_t> starts;
  for (int64_t step = 0; step < 200; ++step) {
    const Batch batch = batch_of(source, {0, step, 0, 1, 8});
    starts.insert(batch.tokens[0]);
    EXPECT_EQ(batch.targets[7], batch.tokens[0] + 8);
  }
  EXPECT_EQ(starts, (std::set<int32_t>{0, 1, 2, 3}));
}

TEST(Loader, ValidationWalksTheFileWithoutOverlap) {
  const TempFolder folder;
  const auto source = TokenSource::file(counting_file(folder, 25), 8, 25);
  EXPECT_EQ(source.validation_windows(8), 3);
  const Batch batch = validation_of(source, {.first_window = 1, .count = 2, .seq_len = 8});
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(batch.tokens[i], 8 + i);
    EXPECT_EQ(batch.targets[i], 9 + i);
  }
  EXPECT_THROW(validation_of(source, {2, 2, 8}), InternalError);
  EXPECT_EQ(TokenSource::file(counting_file(folder, 24), 8, 25).validation_windows(8), 2);
}

TEST(Loader, SyntheticValidationIsFixed) {
  const auto source = TokenSource::synthetic(50);
  EXPECT_EQ(validation_of(source, {4, 2, 8}), validation_of(source, {4, 2, 8}));
  EXPECT_NE(validation_of(source, {4, 2, 8}), validation_of(source, {5, 2, 8}));
  EXPECT_EQ(source.token_file(), nullptr);
}

TEST(Loader, ShortFilesAndLargeIdsAreRefused) {
  const TempFolder folder;
  expect_user_error(ExitCode::InputFile,
                    cat(folder / "t.bin",
                        ": file has 8 tokens, expected at least 9 for one window of 8; use more "
                        "text or a smaller training.seq_len"),
                    [&] { TokenSource::file(counting_file(folder, 8), 8, 100); });
  EXPECT_NO_THROW(TokenSource::file(counting_file(folder, 9), 8, 100));
  expect_user_error(ExitCode::InputFile,
                    cat(folder / "t.bin",
                        ": token 20 has id 20, the model's vocabulary has 20; raise "
                        "model.vocab_size or use other data"),
                    [&] { TokenSource::file(counting_file(folder, 30), 8, 20); });
}

// A file of `count` tokens that are all `id`.
TokenFile constant_file(const TempFolder& folder, const std::string& name, int count, char id) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += {id, '\0'};
  return TokenFile::open(folder.write(name, bytes));
}

TokenSource mix_of(const TempFolder& folder, double first, double second) {
  std::vector<WeightedFile> files;
  files.push_back({constant_file(folder, "a.bin", 50, 1), first});
  files.push_back({constant_file(folder, "b.bin", 80, 2), second});
  return TokenSource::mix(std::move(files), 4, 10);
}

TEST(Mix, SamplesComeInProportionToTheWeights) {
  const TempFolder folder;
  const TokenSource mix = mix_of(folder, 3, 1);
  const Batch batch = batch_of(mix, {.seed = 5, .step = 2, .count = 4000, .seq_len = 4});
  int64_t first = 0;
  for (size_t i = 0; i < batch.tokens.size(); i += 4) first += batch.tokens[i] == 1 ? 1 : 0;
  // 3000 of 4000 expected; the standard deviation is 27.
  EXPECT_NEAR(static_cast<double>(first), 3000, 120);
  EXPECT_EQ(batch, batch_of(mix_of(folder, 0.75, 0.25),
                            {.seed = 5, .step = 2, .count = 4000, .seq_len = 4}));
}

TEST(Mix, ASampleDoesNotDependOnTheBatchItIsIn) {
  const TempFolder folder;
  const TokenSource mix = mix_of(folder, 1, 1);
  const Batch all = batch_of(mix, {.seed = 1, .step = 3, .count = 8, .seq_len = 4});
  const Batch tail =
      batch_of(mix, {.seed = 1, .step = 3, .first_sample = 5, .count = 3, .seq_len = 4});
  EXPECT_EQ(tail.tokens, std::vector<int32_t>(all.tokens.begin() + 20, all.tokens.end()));
}

TEST(Mix, OneFileIsThatFile) {
  const TempFolder folder;
  std::vector<WeightedFile> files;
  files.push_back({counting_file(folder, 100), 0.5});
  const BatchSpec spec{.seed = 3, .step = 1, .count = 5, .seq_len = 8};
  EXPECT_EQ(batch_of(TokenSource::mix(std::move(files), 8, 100), spec),
            batch_of(TokenSource::file(counting_file(folder, 100), 8, 100), spec));
}

TEST(DocumentPositions, CountFromTheTokenAfterAnEndTokenAndFromTheStartOfARow) {
  constexpr int32_t kEnd = 9;
  const std::vector<int32_t> tokens = {4, kEnd, 5, 6, 7, kEnd, kEnd, 1, 2, kEnd, 3, kEnd};
  EXPECT_EQ(document_positions(tokens, 6, kEnd),
            (std::vector<int32_t>{0, 1, 0, 1, 2, 3, 0, 0, 1, 2, 0, 1}));
  EXPECT_EQ(document_positions(tokens, 4, 0),
            (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
}

}  // namespace
}  // namespace weft
