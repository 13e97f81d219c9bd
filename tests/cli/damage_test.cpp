// A damaged checkpoint is found before any of its values is used; the one before it is taken.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <random>

#include "base/disk.h"
#include "base/error.h"
#include "cli/faults.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// A run with checkpoints after steps 1, 2 and 3.
class Damage : public testing::Test {
 protected:
  Damage() {
    work_.folder().write("tiny.toml", kTinyRun);
    work_.run_ok({"train", "tiny.toml"});
  }

  std::string path(const std::string& name, int step = 3) const {
    return work_.folder() / cat("out/checkpoints/step-", step, "/", name);
  }
  std::string read(const std::string& name, int step = 3) const {
    return read_file(path(name, step));
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  std::vector<std::string> files() const { return folder_names(path("")); }

  // Reads everything that resuming reads; the error, or "" if it is accepted.
  std::string verdict() const {
    const std::string checkpoint = work_.folder() / "out/checkpoints/step-3";
    try {
      const std::optional<Manifest> manifest = read_manifest(checkpoint);
      if (!manifest) return "no manifest";
      verify_checkpoint(checkpoint, *manifest);
      return "";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::Integrity) << error.what();
      return error.what();
    }
  }

  // Damages the newest checkpoint and resumes: it must be set aside, and the run must end with the
  // bits it had before.
  void expect_recovery(const std::string& what, const std::function<void()>& damage) {
    SCOPED_TRACE(what);
    const std::string model = read("model.safetensors"), states = read("optimizer.safetensors");
    damage();
    const ProcessResult result = work_.run_ok({"train", "tiny.toml", "--resume"});
    EXPECT_NE(result.output.find("DAMAGED  "), std::string::npos) << result.output;
    EXPECT_NE(result.output.find("RESUMED  from step 2: 1 steps since then are lost"),
              std::string::npos)
        << result.output;
    EXPECT_TRUE(fs::exists(work_.folder() / "out/checkpoints/step-3.bad"));
    EXPECT_TRUE(read("model.safetensors") == model);
    EXPECT_TRUE(read("optimizer.safetensors") == states);
    remove_folder(work_.folder() / "out/checkpoints/step-3.bad");
  }

  Workspace work_;
};

TEST_F(Damage, EveryFlippedBitIsFound) {
  std::mt19937_64 random(15);
  ASSERT_EQ(verdict(), "");
  const std::vector<std::string> names = files();
  for (int i = 0; i < 1000; ++i) {
    const std::string& name = names[random() % names.size()];
    const std::string before = read(name);
    std::string after = before;
    const size_t at = random() % after.size();
    after[at] = static_cast<char>(after[at] ^ (1 << random() % 8));
    write(name, after);
    ASSERT_NE(verdict(), "") << name << " byte " << at;
    write(name, before);
  }
  EXPECT_EQ(verdict(), "");
}

TEST_F(Damage, EveryTruncationIsFound) {
  for (const std::string& name : files()) {
    const std::string before = read(name);
    for (const size_t length : {size_t{0}, size_t{1}, std::min<size_t>(100, before.size() - 1),
                                before.size() / 2, before.size() - 1}) {
      write(name, before.substr(0, length));
      EXPECT_NE(verdict(), "") << name << " " << length;
    }
    write(name, before + "x");
    EXPECT_NE(verdict(), "") << name;
    write(name, before);
  }
}

TEST_F(Damage, MissingSwappedAndForeignFilesAreFound) {
  for (const std::string& name : files()) {
    const std::string before = read(name);
    fs::remove(path(name));
    EXPECT_NE(verdict(), "") << name;
    write(name, before);
  }
  const std::string model = read("model.safetensors"), states = read("optimizer.safetensors");
  write("model.safetensors", states);
  write("optimizer.safetensors", model);
  EXPECT_NE(verdict(), "");
  write("optimizer.safetensors", states);
  write("model.safetensors", read("model.safetensors", 2));  // of another step
  EXPECT_NE(verdict(), "");
  write("model.safetensors", model);
  EXPECT_EQ(verdict(), "");
  write("model-00001-of-00002.safetensors", model);
  EXPECT_NE(verdict().find("the manifest does not list this file"), std::string::npos);
}

TEST_F(Damage, TheCheckpointBeforeItIsTaken) {
  const auto flip = [&](const std::string& name, size_t at) {
    std::string bytes = read(name);
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
    write(name, bytes);
  };
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "training_state.json",
                           "config.toml", "config.json", "manifest.json"}) {
    expect_recovery(name, [&] { flip(name, read(name).size() / 2); });
  }
  expect_recovery("header", [&] { flip("model.safetensors", 20); });
  expect_recovery("truncated", [&] { fs::resize_file(path("optimizer.safetensors"), 1000); });
  expect_recovery("missing", [&] { fs::remove(path("optimizer.safetensors")); });
  expect_recovery("foreign", [&] { write("model.safetensors.index.json", "{}"); });
}

TEST_F(Damage, SaysWhereAndWhatItExpected) {
  std::string bytes = read("optimizer.safetensors");
  bytes.at(5000) = static_cast<char>(bytes.at(5000) ^ 16);
  write("optimizer.safetensors", bytes);
  const std::string folder = "out/checkpoints/step-3";
  const ProcessResult verified = work_.run({"checkpoint", "verify", "out"});
  EXPECT_EQ(verified.exit_code, 74);
  EXPECT_NE(verified.output.find(cat("DAMAGED  ", folder,
                                     "/optimizer.safetensors: the block at byte 0 of ",
                                     bytes.size(), " bytes has checksum ")),
            std::string::npos)
      << verified.output;
  EXPECT_NE(verified.output.find("ok       out/checkpoints/step-2"), std::string::npos);
  // A checkpoint that was named is not set aside.
  const ProcessResult named =
      work_.run({"train", "tiny.toml", "--resume=" + folder, "--job.dump_folder=other"});
  EXPECT_EQ(named.exit_code, 74);
  EXPECT_TRUE(fs::exists(work_.folder() / folder));
  EXPECT_FALSE(fs::exists(work_.folder() / "other"));
  EXPECT_EQ(work_.run({"train", "tiny.toml", "--resume=3"}).exit_code, 74);
  EXPECT_TRUE(fs::exists(work_.folder() / folder));
}

TEST_F(Damage, WithoutAnyGoodCheckpointTheRunIsRefused) {
  for (const int step : {1, 2, 3}) fs::resize_file(path("manifest.json", step), 10);
  const ProcessResult result = work_.run({"train", "tiny.toml", "--resume", "--ranks", "2"});
  EXPECT_EQ(result.exit_code, 74);
  EXPECT_NE(result.errors.find("out/checkpoints: every checkpoint is damaged; they were set aside "
                               "as step-N.bad, start again with --overwrite\n"),
            std::string::npos)
      << result.errors;
  EXPECT_TRUE(fs::exists(work_.folder() / "out/checkpoints/step-1.bad"));
}

}  // namespace
}  // namespace weft
