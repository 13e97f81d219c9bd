// A damaged checkpoint is found before any of its values is used; the one before it is taken.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "base/checksum.h"
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
    // With the tokenizer of a data set, so that every kind of file is there.
    std::string config = kTinyRun;
    const std::string section = "[training]\n";
    config.insert(config.find(section) + section.size(),
                  "dataset = \"file\"\ndataset_path = \"data/train.bin\"\n");
    work_.prepare_data();
    work_.folder().write("tiny.toml", config);
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

  // Changes a file and its checksums in the manifest, as no damage can.
  void rewrite(const std::string& name, const std::string& bytes) const {
    Manifest manifest = *read_manifest(path(""));
    write(name, bytes);
    for (ManifestFile& file : manifest.files) {
      if (file.name != name) continue;
      file.blocks = {{std::ssize(bytes), checksum(std::as_bytes(std::span(bytes)))}};
    }
    write("manifest.json", manifest_text(manifest));
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

// A sample of flipped bits, through the command that loads.
TEST_F(Damage, NoFlippedBitIsLoaded) {
  std::mt19937_64 random(16);
  for (const std::string& name : files()) {
    for (int i = 0; i < 2; ++i) {
      std::string bytes = read(name);
      const size_t at = random() % bytes.size();
      expect_recovery(cat(name, " byte ", at), [&] {
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        write(name, bytes);
      });
    }
  }
}

// Checksums do not tell two shards apart if their files have changed places, names do.
TEST_F(Damage, SwappedShardsAreFound) {
  fs::remove_all(work_.folder() / "out");
  work_.run_ok({"train", "tiny.toml", "--checkpoint.max_file_bytes=1024"});
  ASSERT_EQ(verdict(), "");
  std::map<std::pair<std::string, size_t>, std::string> seen;  // by kind of file and size
  int swaps = 0;
  for (const std::string& name : files()) {
    const std::string bytes = read(name);
    const auto [at, fresh] = seen.try_emplace({name.substr(0, 5), bytes.size()}, name);
    if (fresh) continue;
    const std::string other = at->second, others = read(other);
    write(other, bytes);
    write(name, others);
    EXPECT_NE(verdict().find(other + ": the block at byte 0 of "), std::string::npos) << name;
    write(other, others);
    write(name, bytes);
    ++swaps;
  }
  EXPECT_GE(swaps, 5);
  EXPECT_EQ(verdict(), "");
}

// What a valid manifest describes is not what a run needs.
TEST_F(Damage, MissingTensorsAreRefused) {
  const auto refused = [&](const std::string& file, const std::string& tensor) {
    SCOPED_TRACE(tensor);
    const std::string before = read(file), manifest = read("manifest.json");
    std::string bytes = before;
    const size_t at = bytes.find(cat("\"", tensor, "\""));
    ASSERT_NE(at, std::string::npos);
    bytes[at + 1] = '~';  // under another name
    rewrite(file, bytes);
    ASSERT_EQ(verdict(), "");
    const ProcessResult result = work_.run({"train", "tiny.toml", "--resume"});
    EXPECT_EQ(result.exit_code, 65) << result.output;
    EXPECT_NE(result.errors.find(cat("tensor \"", tensor, "\" is missing")), std::string::npos)
        << result.errors;
    write(file, before);
    write("manifest.json", manifest);
  };
  refused("optimizer.safetensors", "adam.count");
  refused("optimizer.safetensors", "m.model.embed_tokens.weight");
  refused("optimizer.safetensors", "v.model.norm.weight");
  refused("model.safetensors", "model.norm.weight");
  work_.run_ok({"train", "tiny.toml", "--resume"});
}

TEST_F(Damage, EditedManifestsAreFound) {
  const Manifest original = *read_manifest(path(""));
  Manifest unlisted = original;
  std::erase_if(unlisted.files,
                [](const ManifestFile& file) { return file.name == "optimizer.safetensors"; });
  expect_recovery("unlisted", [&] { write("manifest.json", manifest_text(unlisted)); });
  Manifest another_step = original;
  another_step.step = 7;
  expect_recovery("step", [&] { write("manifest.json", manifest_text(another_step)); });
  expect_recovery("state", [&] {
    std::string state = read("training_state.json");
    state.replace(state.find("\"step\": 3"), 9, "\"step\": 1");
    rewrite("training_state.json", state);
  });
  Manifest larger = original;
  larger.files.front().blocks.front().bytes += 1;
  expect_recovery("larger", [&] { write("manifest.json", manifest_text(larger)); });
  // Under the name of another step it would hide the newer ones.
  fs::rename(path("", 1), path("", 9));
  const ProcessResult renamed = work_.run_ok({"train", "tiny.toml", "--resume"});
  EXPECT_NE(
      renamed.output.find("DAMAGED  out/checkpoints/step-9/manifest.json: of step 1, expected "
                          "9 as in the name of the folder; rename it; set aside as "
                          "out/checkpoints/step-9.bad\n"),
      std::string::npos)
      << renamed.output;
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
