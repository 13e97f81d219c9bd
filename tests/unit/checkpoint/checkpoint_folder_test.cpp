// The checkpoints of a run: which count, which remain, and what is left of the others.
#include "checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "checkpoint/block_writer.h"
#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Names = std::vector<std::string>;
using Steps = std::vector<int64_t>;

constexpr std::string_view kContent = "hello";
constexpr const char* kWeights = "model.safetensors";

// Writes everything but the manifest, which is returned.
Manifest write_unfinished(const CheckpointFolder& folder, const std::string& partial,
                          int64_t step) {
  folder.begin(partial);
  const std::vector<PlannedFile> files = {{kWeights, std::ssize(kContent)}};
  const std::vector<FileRange> ranges = {{0, 0, std::ssize(kContent)}};
  reserve_files(partial, files);
  return make_manifest(
      step, files,
      write_ranges(partial, files, ranges, [](size_t, int64_t, std::span<std::byte> bytes) {
        std::memcpy(bytes.data(), kContent.data(), bytes.size());
      }));
}

// Saves a checkpoint and returns its digest.
std::string save(const CheckpointFolder& folder, int64_t step) {
  const std::string partial = folder.partial_path(step, 1);
  return folder.commit(partial, write_unfinished(folder, partial, step));
}

void save_all(const CheckpointFolder& folder, const Steps& steps) {
  for (const int64_t step : steps) save(folder, step);
}

Steps committed_steps(const CheckpointFolder& folder) {
  Steps steps;
  for (const CommittedCheckpoint& saved : folder.committed()) {
    EXPECT_EQ(saved.path, folder.path_of(saved.step));
    steps.push_back(saved.step);
  }
  return steps;
}

TEST(CheckpointFolder, ACheckpointCountsOnceItIsCommitted) {
  const TempFolder temp;
  const CheckpointFolder folder(temp / "run/checkpoints");
  EXPECT_EQ(committed_steps(folder), Steps{});
  const std::string partial = folder.partial_path(4, 0xab);
  EXPECT_EQ(partial, temp / "run/checkpoints/step-4.partial-00000000000000ab");
  const Manifest manifest = write_unfinished(folder, partial, 4);
  EXPECT_EQ(committed_steps(folder), Steps{});

  const std::string digest = folder.commit(partial, manifest);
  EXPECT_EQ(committed_steps(folder), Steps{4});
  EXPECT_EQ(temp.read("run/checkpoints/step-4/manifest.json"), manifest_text(manifest));
  EXPECT_EQ(digest, manifest_digest(manifest_text(manifest)));
  EXPECT_EQ(checkpoint_digest(folder.path_of(4)), digest);
  EXPECT_EQ(read_manifest(folder.path_of(4)), manifest);
  EXPECT_NO_THROW(verify_checkpoint(folder.path_of(4), manifest));
}

// By number, not by name.
TEST(CheckpointFolder, OldestFirst) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  save_all(folder, {10, 9, 0, 100});
  EXPECT_EQ(committed_steps(folder), (Steps{0, 9, 10, 100}));
}

TEST(CheckpointFolder, OtherFoldersDoNotCount) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  for (const char* name :
       {"step-1.partial-0000000000000001", "step-2.bad", "step-3.bad2", "step-04", "step-+5",
        "step--6", "step-", "step-7x", "step 8", "9", "step-99999999999999999999"}) {
    std::filesystem::create_directory(temp / name);
    temp.write(cat(name, "/manifest.json"), "{}");
  }
  std::filesystem::create_directory(temp / "step-10");  // without a manifest
  temp.write("step-11", "a file");
  EXPECT_EQ(committed_steps(folder), Steps{});
  EXPECT_EQ(read_manifest(temp / "step-10"), std::nullopt);
}

TEST(CheckpointFolder, AttemptsDoNotShareAFolder) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  const std::string partial = folder.partial_path(4, 2);
  folder.begin(partial);
  expect_user_error(ExitCode::CannotWrite, cat(partial, ": cannot create the folder: File exists"),
                    [&] { folder.begin(partial); });
}

// A save can fail after its rename; the next attempt for the same step must not fail because of it.
TEST(CheckpointFolder, ACommitReplacesWhatAFailedOneLeft) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  const std::string before = save(folder, 4);
  temp.write("step-4/other.safetensors", "of the first attempt");
  EXPECT_EQ(save(folder, 4), before);
  EXPECT_EQ(temp.names(), Names{"step-4"});
  EXPECT_NO_THROW(verify_checkpoint(folder.path_of(4), *read_manifest(folder.path_of(4))));
}

TEST(CheckpointFolder, PruningKeepsTheLatest) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  save_all(folder, {1, 2, 3, 4});
  EXPECT_EQ(folder.prune({.latest = 0}), Steps{});
  EXPECT_EQ(folder.prune({.latest = 5}), Steps{});
  EXPECT_EQ(folder.prune({.latest = 4}), Steps{});
  EXPECT_EQ(folder.prune({.latest = 2}), (Steps{1, 2}));
  EXPECT_EQ(temp.names(), (Names{"step-3", "step-4"}));
}

TEST(CheckpointFolder, PruningKeepsEveryNthStep) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  save_all(folder, {5, 10, 15, 20, 25});
  EXPECT_EQ(folder.prune({.latest = 0, .every = 10}), Steps{});
  EXPECT_EQ(folder.prune({.latest = 1, .every = 10}), (Steps{5, 15}));
  EXPECT_EQ(committed_steps(folder), (Steps{10, 20, 25}));
}

// Otherwise a run that fails to save again and again would remove its last good checkpoint.
TEST(CheckpointFolder, OnlyCommittedOnesCountForPruning) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  save_all(folder, {1, 2, 3});
  folder.begin(folder.partial_path(9, 1));
  folder.set_aside(3);
  EXPECT_EQ(folder.prune({.latest = 1}), Steps{1});
  EXPECT_EQ(temp.names(), (Names{"step-2", "step-3.bad", "step-9.partial-0000000000000001"}));
}

TEST(CheckpointFolder, RemovingLeavesNothing) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  save_all(folder, {1, 2});
  folder.remove(1);
  EXPECT_EQ(temp.names(), Names{"step-2"});
}

TEST(CheckpointFolder, DamagedOnesAreSetAsideUnderFreeNames) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  for (const char* name : {"step-7.bad", "step-7.bad2", "step-7.bad3"}) {
    save(folder, 7);
    EXPECT_EQ(folder.set_aside(7), temp / name);
  }
  EXPECT_EQ(temp.names(), (Names{"step-7.bad", "step-7.bad2", "step-7.bad3"}));
  EXPECT_EQ(temp.read("step-7.bad2/model.safetensors"), kContent);
  EXPECT_EQ(committed_steps(folder), Steps{});
}

TEST(CheckpointFolder, WhatKilledRunsLeftIsRemoved) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  save_all(folder, {1, 2});
  folder.set_aside(2);
  write_unfinished(folder, folder.partial_path(3, 1), 3);
  folder.begin(folder.partial_path(3, 2));
  folder.begin(folder.partial_path(1, 0));  // of a removal
  temp.write("notes.partial-1", "the user's");
  folder.remove_partials();
  EXPECT_EQ(temp.names(), (Names{"notes.partial-1", "step-1", "step-2.bad"}));
  EXPECT_NO_THROW(CheckpointFolder(temp / "none").remove_partials());
}

TEST(CheckpointFiles, TensorsThatTheManifestDoesNotListAreFound) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  save(folder, 1);
  const Manifest manifest = *read_manifest(folder.path_of(1));
  temp.write("step-1/README.md", "the user's own files do no harm");
  EXPECT_NO_THROW(check_files(folder.path_of(1), manifest));
  // An index would be taken instead of the single file.
  for (const std::string name : {"model.safetensors.index.json", "other.safetensors"}) {
    const std::string path = temp.write("step-1/" + name, "{}");
    const std::string message = path + ": the manifest does not list this file";
    expect_user_error(ExitCode::Integrity, message,
                      [&] { check_files(folder.path_of(1), manifest); });
    expect_user_error(ExitCode::Integrity, message,
                      [&] { verify_checkpoint(folder.path_of(1), manifest); });
    std::filesystem::remove(path);
  }
}

// Sizes are compared at once, contents only by a verification.
TEST(CheckpointFiles, ListedFilesAreCompared) {
  const TempFolder temp;
  const CheckpointFolder folder(temp.path());
  save(folder, 1);
  const Manifest manifest = *read_manifest(folder.path_of(1));
  const std::string weights = temp.write("step-1/model.safetensors", "Hello");
  EXPECT_NO_THROW(check_files(folder.path_of(1), manifest));
  EXPECT_THROW(verify_checkpoint(folder.path_of(1), manifest), UserError);
  temp.write("step-1/model.safetensors", "hell");
  expect_user_error(ExitCode::Integrity, weights + ": file has 4 bytes, expected 5; it is damaged",
                    [&] { check_files(folder.path_of(1), manifest); });
  std::filesystem::remove(weights);
  expect_user_error(ExitCode::Integrity, weights + ": the file is missing",
                    [&] { check_files(folder.path_of(1), manifest); });
}

TEST(CheckpointFiles, ADamagedManifestIsNamed) {
  const TempFolder temp;
  const std::string path = temp.write("manifest.json", "{}");
  const std::string message = path + ": has no digest; it is damaged";
  expect_user_error(ExitCode::Integrity, message, [&] { read_manifest(temp.path()); });
  expect_user_error(ExitCode::Integrity, message, [&] { checkpoint_digest(temp.path()); });
}

}  // namespace
}  // namespace weft
