// Runs that are saved on one mesh and continued on another, with tensor and context parallelism.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "base/text.h"
#include "cli/workspace.h"

namespace weft {
namespace {

struct MeshCase {
  std::string name;
  int64_t ranks = 1;
  std::vector<std::string> flags = {};
};

const std::string kDropout = "--model.dropout=0.1";

const MeshCase kMeshes[] = {
    {"1", 1, {kDropout}},
    {"fsdp4", 4, {kDropout}},
    {"tp2", 2, {"--parallelism.tensor_parallel_degree=2", kDropout}},
    {"cp2", 2, {"--parallelism.context_parallel_degree=2", kDropout}},
    {"ring2",
     2,
     {"--parallelism.context_parallel_degree=2", "--parallelism.context_parallel_method=ring",
      kDropout}},
    {"tp2_fsdp2", 4, {"--parallelism.tensor_parallel_degree=2", kDropout}},
    {"hsdp", 4, {"--parallelism.data_parallel_replicate_degree=2", kDropout}},
};

std::vector<std::string> command(const MeshCase& mesh, const std::string& folder) {
  std::vector<std::string> words = {"train",
                                    "run.toml",
                                    "--job.dump_folder=" + folder,
                                    cat("--ranks=", mesh.ranks),
                                    "--transport=threads",
                                    "--training.steps=6",
                                    "--training.local_batch_size=1",
                                    "--training.global_batch_size=4",
                                    "--checkpoint.interval=3",
                                    "--metrics.log_freq=1"};
  words.insert(words.end(), mesh.flags.begin(), mesh.flags.end());
  return words;
}

// Another mesh adds in another order, so losses differ by rounding.
void check_any_continues_any(std::span<const MeshCase> meshes) {
  const Workspace work;
  work.prepare_data();
  for (const MeshCase& from : meshes) work.run_ok(command(from, from.name));
  const std::vector<double> expected = work.figures("1/metrics.jsonl", "loss");
  ASSERT_EQ(expected.size(), 6U);
  for (const MeshCase& from : meshes) {
    for (const MeshCase& to : meshes) {
      const std::string folder = from.name + "_to_" + to.name;
      std::vector<std::string> resumed = command(to, folder);
      resumed.push_back("--resume=" + from.name + "/checkpoints/step-3");
      work.run_ok(resumed);
      const std::vector<double> losses = work.figures(folder + "/metrics.jsonl", "loss");
      ASSERT_EQ(losses.size(), 3U) << folder;
      for (size_t i = 0; i < losses.size(); ++i) {
        EXPECT_NEAR(losses[i] / expected[i + 3], 1, 2e-5) << folder << ", step " << i + 4;
      }
    }
  }
}

TEST(Meshes, AnyContinuesAnyOther) {
  check_any_continues_any(kMeshes);
}

// The experts of a checkpoint are read by whoever has them.
TEST(Meshes, AnyContinuesAnyOtherWithExperts) {
  const std::vector<std::string> model = {"--model.name=qwen3_moe", "--model.flavor=debug",
                                          "--model.dim=32",         "--model.n_heads=4",
                                          "--model.n_kv_heads=2",   "--model.n_layers=2",
                                          "--model.ffn_dim=48",     "--model.expert_ffn_dim=32"};
  const std::string ep = "--parallelism.expert_parallel_degree=";
  const std::string tp = "--parallelism.tensor_parallel_degree=2";
  std::vector<MeshCase> meshes = {{"1"},
                                  {"ep2", 2, {ep + "2"}},
                                  {"fsdp4_ep2", 4, {ep + "2"}},
                                  {"ep4", 4, {ep + "4"}},
                                  {"tp2", 2, {tp}},
                                  {"ep2_tp2", 4, {ep + "2", tp}}};
  for (MeshCase& mesh : meshes) mesh.flags.insert(mesh.flags.end(), model.begin(), model.end());
  check_any_continues_any(meshes);
}

// Transfers in chunks change no bit of losses, norms and validation losses, whether ranks are
// threads or processes.
TEST(Meshes, ChunksKeepTheBits) {
  const Workspace work;
  work.prepare_data();
  const MeshCase off{"off",
                     2,
                     {"--parallelism.tensor_parallel_degree=2",
                      "--parallelism.enable_async_tensor_parallel=false", kDropout}};
  work.run_ok(command(off, "off"));
  for (const std::string transport : {"threads", "shm"}) {
    std::vector<std::string> words = command(kMeshes[2], transport);
    std::replace(words.begin(), words.end(), std::string("--transport=threads"),
                 "--transport=" + transport);
    words.push_back("--parallelism.async_tensor_parallel_chunks=2");
    work.run_ok(words);
    for (const char* figure : {"loss", "grad_norm", "validation_loss"}) {
      const std::vector<double> expected = work.figures("off/metrics.jsonl", figure);
      ASSERT_FALSE(expected.empty()) << figure;
      EXPECT_EQ(work.figures(transport + "/metrics.jsonl", figure), expected)
          << transport << ", " << figure;
    }
  }
}

// Text is generated and validation losses are computed from what a mesh has trained.
TEST(Meshes, ValidateAndGenerate) {
  const Workspace work;
  work.prepare_data();
  work.run_ok(command(kMeshes[0], "one"));
  work.run_ok(command(kMeshes[3], "run"));
  const std::vector<double> expected = work.figures("one/metrics.jsonl", "validation_loss");
  const std::vector<double> losses = work.figures("run/metrics.jsonl", "validation_loss");
  ASSERT_EQ(losses.size(), expected.size());
  ASSERT_FALSE(losses.empty());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i] / expected[i], 1, 2e-5);
  EXPECT_NE(work.run_ok({"generate", "run", "--tokens", "5"}).output, "");
}

}  // namespace
}  // namespace weft
