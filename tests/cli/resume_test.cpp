// Runs that are continued: same bits on the same ranks, on other ranks and on other meshes.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>

#include "base/disk.h"
#include "base/text.h"
#include "cli/faults.h"
#include "cli/results.h"

namespace weft {
namespace {

const std::vector<std::string> kElastic = {"--debug.deterministic=elastic",
                                           "--debug.elastic_shards=4", "--training.steps=8",
                                           "--checkpoint.interval=3", "--model.dropout=0.1"};

struct MeshCase {
  std::string name;
  std::vector<std::string> flags;
};

const MeshCase kMeshes[] = {
    {"1", {}},
    {"ddp_2", {"--ranks=2", "--parallelism.data_parallel_replicate_degree=2"}},
    {"zero1_2", {"--ranks=2", "--parallelism.zero_stage=1"}},
    {"fsdp_4", {"--ranks=4"}},
    {"hsdp_2x2",
     {"--ranks=4", "--parallelism.data_parallel_replicate_degree=2", "--compile.bucketing=none"}},
};

std::vector<std::string> command(const MeshCase& mesh, const std::string& folder) {
  std::vector<std::string> words = {"train", "run.toml", "--job.dump_folder=" + folder,
                                    "--transport=threads"};
  words.insert(words.end(), kElastic.begin(), kElastic.end());
  words.insert(words.end(), mesh.flags.begin(), mesh.flags.end());
  return words;
}

// Saved on every mesh, loaded on every mesh: the next five steps and the last checkpoint are those
// of the uninterrupted run.
TEST(Resume, AnyMeshContinuesAnyOther) {
  const Workspace work;
  work.prepare_data();
  for (const MeshCase& from : kMeshes) {
    work.run_ok(command(from, from.name));
    expect_same_tensors(work, from.name + "/checkpoints/step-8", "1/checkpoints/step-8");
    for (const MeshCase& to : kMeshes) {
      const std::string folder = from.name + "_to_" + to.name;
      std::vector<std::string> resumed = command(to, folder);
      resumed.push_back("--resume=" + from.name + "/checkpoints/step-3");
      const ProcessResult result = work.run_ok(resumed);
      EXPECT_EQ(result.output.find("NOTE"), std::string::npos) << result.output;
      EXPECT_EQ(results_from(work, folder, 4), results_from(work, "1", 4)) << folder;
      expect_same_tensors(work, folder + "/checkpoints/step-8", "1/checkpoints/step-8");
    }
  }
}

// Ranks that share a layer add in another order, even in an elastic run. The run says so; with the
// same tensor parallelism it has the same bits.
TEST(Resume, AnotherTensorParallelismIsNoted) {
  const Workspace work;
  work.prepare_data();
  const std::string two = "--parallelism.tensor_parallel_degree=2";
  const MeshCase data{"dp_2", {"--ranks=2"}}, tensor{"tp_2", {"--ranks=2", two}},
      tokens{"tp_2_tokens", {"--ranks=2", two, "--parallelism.sequence_parallel=false"}},
      both{"dp_2_tp_2", {"--ranks=4", two}};
  struct Case {
    bool elastic;
    const MeshCase &from, &to;
    bool same_bits;
  };
  const Case cases[] = {{false, data, tensor, false},
                        {false, tensor, tensor, true},
                        {false, tensor, tokens, false},
                        {true, data, both, false},
                        {true, tensor, both, true}};
  for (const auto& [elastic, from, to, same_bits] : cases) {
    const auto train = [&, is_elastic = elastic](const MeshCase& mesh, const std::string& folder,
                                                 const std::string& more) {
      std::vector<std::string> words = {"train",
                                        "run.toml",
                                        "--job.dump_folder=" + folder,
                                        "--transport=threads",
                                        "--training.steps=6",
                                        more};
      words.insert(words.end(), mesh.flags.begin(), mesh.flags.end());
      if (is_elastic) {
        words.insert(words.end(), {"--debug.deterministic=elastic", "--debug.elastic_shards=4"});
      } else {
        words.emplace_back("--training.global_batch_size=8");
      }
      return work.run_ok(words).output;
    };
    const std::string folder = cat(from.name, "_to_", to.name, elastic ? "_elastic" : "");
    train(from, folder + "_source", "--checkpoint.interval=3");
    const std::string output =
        train(to, folder, "--resume=" + folder + "_source/checkpoints/step-3");
    const bool noted =
        output.find(
            "NOTE     tensor or context parallelism has changed: losses "
            "differ from those of the uninterrupted run by rounding\n") != std::string::npos;
    EXPECT_EQ(noted, !same_bits) << folder << output;
    if (!same_bits) continue;
    EXPECT_EQ(output.find("NOTE"), std::string::npos) << output;
    expect_same_tensors(work, folder + "/checkpoints/step-6",
                        folder + "_source/checkpoints/step-6");
  }
}

// Every step of a run, in every precision, with all that has state: the loss scale, skipped steps,
// dropout, validation.
TEST(Resume, AtEveryStepOnTheSameRanks) {
  const Workspace work;
  work.prepare_data();
  const std::vector<std::vector<std::string>> runs = {
      {"--training.mixed_precision_param=float16", "--grad_scaler.init_scale=1073741824",
       "--grad_scaler.growth_interval=2"},
      {"--training.mixed_precision_param=bfloat16", "--training.keep_low_precision=true",
       "--checkpoint.export_dtype=bfloat16", "--ranks=2", "--transport=threads"},
      {"--training.global_batch_size=8", "--checkpoint.max_file_bytes=20000"}};
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::string> flags = {"--model.dropout=0.1", "--checkpoint.interval=1",
                                      "--metrics.log_freq=1"};
    flags.insert(flags.end(), runs[i].begin(), runs[i].end());
    const std::string name = cat("run", i);
    std::vector<std::string> uninterrupted = {"train", "run.toml", "--job.dump_folder=" + name};
    uninterrupted.insert(uninterrupted.end(), flags.begin(), flags.end());
    work.run_ok(uninterrupted);
    for (int64_t step = 1; step <= 5; ++step) {
      const std::string folder = cat(name, "_", step);
      std::vector<std::string> resumed = {"train", "run.toml", "--job.dump_folder=" + folder,
                                          cat("--resume=", name, "/checkpoints/step-", step)};
      resumed.insert(resumed.end(), flags.begin(), flags.end());
      work.run_ok(resumed);
      EXPECT_EQ(results_from(work, folder, step + 1), results_from(work, name, step + 1)) << folder;
      expect_same_tensors(work, folder + "/checkpoints/step-6", name + "/checkpoints/step-6");
    }
  }
  // The first run did skip steps.
  EXPECT_NE(work.folder().read("run0/metrics.jsonl").find("\"skipped\":true"), std::string::npos);
}

// An interrupted run continues in its own folder: metrics without gaps or repetitions.
TEST(Resume, AnInterruptedRunContinuesItsMetrics) {
  const Workspace work;
  work.prepare_data();
  const std::vector<std::string> flags = {"--training.steps=40", "--metrics.log_freq=1",
                                          "--checkpoint.interval=5", "--validation.freq=4"};
  std::vector<std::string> uninterrupted = flags;
  uninterrupted.emplace_back("--job.dump_folder=uninterrupted");
  ASSERT_EQ(work.train(uninterrupted).exit_code, 0);
  for (const int signal : {SIGTERM, SIGKILL, SIGINT}) {
    bool sent = false;
    const ProcessOptions options{
        .folder = work.folder().path(),
        .watch = [&](pid_t child, const std::string& output, const std::string&) {
          if (sent || output.find(" tok/s") == std::string::npos) return;
          sent = true;
          ::kill(child, signal);
        }};
    std::vector<std::string> words = {WEFT_BINARY, "train", "run.toml", "--resume"};
    words.insert(words.end(), flags.begin(), flags.end());
    run_process(words, options);
  }
  std::vector<std::string> last = {"train", "run.toml", "--resume"};
  last.insert(last.end(), flags.begin(), flags.end());
  work.run_ok(last);
  EXPECT_EQ(results_from(work, "out", 0), results_from(work, "uninterrupted", 0));
  expect_same_tensors(work, "out/checkpoints/step-40", "uninterrupted/checkpoints/step-40");
}

TEST(Resume, SaysWhatChangedAndRefusesContradictions) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({"--checkpoint.interval=2"}).exit_code, 0);
  const auto refused = [&](const std::string& flag, int code, const std::string& message) {
    const ProcessResult result =
        work.run({"train", "run.toml", "--checkpoint.interval=2", "--resume", flag});
    EXPECT_EQ(result.exit_code, code);
    EXPECT_EQ(result.errors, "weft: " + message + "\n");
  };
  const std::string newest = "out/checkpoints/step-6: ";
  refused("--debug.seed=7", 64,
          newest +
              "made with debug.seed = 1337, now 7; resume with the same seed, which orders the "
              "data");
  refused("--model.dim=64", 64,
          newest + "made with model.dim = 32, now 64; resume with the same model");
  refused("--model.n_layers=3", 64,
          newest + "made with model.n_layers = 2, now 3; resume with the same model");
  refused("--resume=5", 64,
          "command line: --resume=5: out/checkpoints has no checkpoint of that step; the newest is "
          "step 6");
  const ProcessResult nowhere =
      work.run({"train", "run.toml", "--job.dump_folder=new", "--resume=nowhere"});
  EXPECT_EQ(nowhere.exit_code, 64);
  EXPECT_EQ(nowhere.errors,
            "weft: command line: --resume=nowhere: no such folder; give a step, or the folder of a "
            "checkpoint or of a run\n");
  refused("--resume=2", 73,
          "command line: --resume=2: out/checkpoints/step-6 is newer and would be replaced; add "
          "--overwrite to remove what comes after step 2, or set another job.dump_folder and give "
          "--resume the folder");
  const ProcessResult longer =
      work.run_ok({"train", "run.toml", "--checkpoint.interval=2", "--resume", "--training.steps=8",
                   "--ranks=2", "--training.local_batch_size=2"});
  EXPECT_NE(longer.output.find("changed  training.local_batch_size = 2 (was 4), training.steps = 8 "
                               "(was 6)"),
            std::string::npos)
      << longer.output;
  // The batch is that of the run, whatever the ranks.
  EXPECT_NE(longer.output.find("NOTE     saved on 1 rank with cpu, resumed on 2 with cpu: losses "
                               "differ from those of the uninterrupted run by rounding; with "
                               "debug.deterministic = \"elastic\" they would not"),
            std::string::npos)
      << longer.output;
  const ProcessResult smaller = work.run_ok({"train", "run.toml", "--checkpoint.interval=2",
                                             "--resume", "--training.local_batch_size=2"});
  for (const char* note :
       {"weights  from out/checkpoints/step-8\n",
        "NOTE     nothing is left to do: training.steps = 6, the checkpoint has 8\n",
        "NOTE     a step now trains on 2 sequences instead of 4; set training.global_batch_size to "
        "keep it fixed\n"}) {
    EXPECT_NE(smaller.output.find(note), std::string::npos) << note << smaller.output;
  }
}

// Sizes that the tensors do not show.
TEST(Resume, RefusesAnotherRotaryEmbedding) {
  const Workspace work;
  work.folder().write("tiny.toml", kTinyRun);
  work.run_ok({"train", "tiny.toml"});
  const auto refused = [&](const std::string& flag, const std::string& message) {
    const ProcessResult result = work.run({"train", "tiny.toml", "--resume", flag});
    EXPECT_EQ(result.exit_code, 64) << result.output;
    EXPECT_EQ(result.errors, "weft: out/checkpoints/step-3: made with " + message +
                                 "; resume with the same model\n");
  };
  refused("--model.rope_theta=20000", "model.rope_theta = 5e+05, now 20000");
  refused("--model.rope_scaling=llama3", "the factor of model.rope_scaling = 0, now 8");
}

// Two vocabularies of the same size: the sizes agree, the ids mean something else.
TEST(Resume, RefusesAnotherTokenizer) {
  const Workspace work;
  const auto prepare = [&](const std::string& text) {
    std::filesystem::remove_all(work.folder() / "data");
    std::string long_text;
    for (int i = 0; i < 200; ++i) long_text += text;
    work.folder().write("text.txt", long_text);
    work.run_ok({"data", "prepare", "text.txt", "--output", "data", "--tokenizer", "char"});
  };
  prepare("the weaver weaves a web\n");
  ASSERT_EQ(work.train({}).exit_code, 0);
  prepare("the beaver beaves a beb!\n");
  const ProcessResult result = work.run({"train", "run.toml", "--resume"});
  EXPECT_EQ(result.exit_code, 64) << result.output;
  EXPECT_TRUE(result.errors.starts_with(
      "weft: out/checkpoints/step-6: made with the tokenizer char, 11 ids, "))
      << result.errors;
  EXPECT_NE(result.errors.find(", the data with char, 11 ids, "), std::string::npos)
      << result.errors;
  EXPECT_TRUE(result.errors.ends_with("; resume with data of the same tokenizer\n"))
      << result.errors;
}

TEST(Resume, AnEarlierStepOnlyIfTheLaterOnesMayGo) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({"--checkpoint.interval=2"}).exit_code, 0);
  work.run_ok({"train", "run.toml", "--checkpoint.interval=2", "--resume=2", "--overwrite",
               "--training.steps=5", "--lr_scheduler.total_steps=6"});
  EXPECT_EQ(folder_names(work.folder() / "out/checkpoints"),
            (std::vector<std::string>{"step-2", "step-4", "step-5"}));
}

// The run's own checkpoints may be named by path, too: nothing up to that step is removed.
TEST(Resume, ACheckpointOfItsOwnByPath) {
  const Workspace work;
  work.prepare_data();
  const std::vector<std::string> own = {"out/checkpoints/step-4", "out/../out/checkpoints/step-4/",
                                        "link/step-4"};
  std::filesystem::create_directory_symlink("out/checkpoints", work.folder() / "link");
  for (const std::string& path : own) {
    SCOPED_TRACE(path);
    ASSERT_EQ(work.train({"--checkpoint.interval=2"}).exit_code, 0);
    const auto before = work.tree();
    const std::vector<std::string> words = {"train", "run.toml", "--checkpoint.interval=2",
                                            "--resume=" + path};
    const ProcessResult refused = work.run(words);
    EXPECT_EQ(refused.exit_code, 73);
    EXPECT_EQ(refused.errors,
              "weft: command line: --resume=4: out/checkpoints/step-6 is newer and would be "
              "replaced; add --overwrite to remove what comes after step 4, or set another "
              "job.dump_folder and give --resume the folder\n");
    EXPECT_TRUE(work.tree() == before);
    std::vector<std::string> asked = words;
    asked.emplace_back("--overwrite");
    work.run_ok(asked);
    auto after = work.tree();
    for (auto& [name, content] : after) {
      if (name.find("/checkpoints/") != std::string::npos) {
        EXPECT_TRUE(content == before.at(name)) << name;
      }
    }
    EXPECT_EQ(folder_names(work.folder() / "out/checkpoints"),
              (std::vector<std::string>{"step-2", "step-4", "step-6"}));
  }
  for (const char* path : {"out", "out/checkpoints"}) {
    SCOPED_TRACE(path);
    ASSERT_EQ(work.train({"--checkpoint.interval=2"}).exit_code, 0);
    work.run_ok({"train", "run.toml", "--checkpoint.interval=2", cat("--resume=", path),
                 "--training.steps=8", "--overwrite"});
    EXPECT_EQ(folder_names(work.folder() / "out/checkpoints"),
              (std::vector<std::string>{"step-2", "step-4", "step-6", "step-8"}));
    EXPECT_EQ(results_from(work, "out", 0).size(), 11U);
  }
}

// What a folder holds is not mixed with a checkpoint from elsewhere.
TEST(Resume, FromElsewhereIntoAUsedFolderOnlyIfAsked) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({"--checkpoint.interval=2"}).exit_code, 0);
  ASSERT_EQ(work.train({"--job.dump_folder=other", "--checkpoint.interval=3"}).exit_code, 0);
  const std::vector<std::string> words = {"train", "run.toml", "--job.dump_folder=other",
                                          "--resume=out/checkpoints/step-2"};
  const auto before = work.tree();
  EXPECT_EQ(work.run(words).exit_code, 73);
  EXPECT_TRUE(work.tree() == before);
  std::vector<std::string> asked = words;
  asked.emplace_back("--overwrite");
  work.run_ok(asked);
  EXPECT_EQ(folder_names(work.folder() / "other/checkpoints"), std::vector<std::string>{"step-6"});
  EXPECT_EQ(results_from(work, "other", 0), results_from(work, "out", 3));
}

TEST(Resume, WithoutACheckpointTheRunStartsAtStepZero) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult fresh = work.run_ok({"train", "run.toml", "--resume"});
  EXPECT_NE(fresh.output.find("NOTE     no checkpoint in out/checkpoints: starts at step 0\n"),
            std::string::npos)
      << fresh.output;
  EXPECT_EQ(results_from(work, "out", 0).size(), 8U);
  const ProcessResult again = work.run_ok({"train", "run.toml", "--resume"});
  EXPECT_NE(again.output.find("resumed  from out/checkpoints/step-6 after step 6"),
            std::string::npos)
      << again.output;
  EXPECT_EQ(results_from(work, "out", 0).size(), 8U);
}

TEST(Resume, WeightsAloneAreNotEnough) {
  const Workspace work;
  work.prepare_data();
  ASSERT_EQ(work.train({"--checkpoint.weights_only=true"}).exit_code, 0);
  EXPECT_FALSE(
      std::filesystem::exists(work.folder() / work.saved("out") + "/optimizer.safetensors"));
  const ProcessResult result =
      work.run({"train", "run.toml", "--checkpoint.weights_only=true", "--resume"});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_EQ(result.errors,
            "weft: out/checkpoints/step-6: holds weights only (checkpoint.weights_only = true); to "
            "start from them, set checkpoint.initial_load_path\n");
}

// Written in the background, with the same contents.
TEST(Resume, BackgroundSavesHoldTheSame) {
  const Workspace work;
  work.prepare_data();
  for (const std::string ranks : {"1", "2"}) {
    ASSERT_EQ(work.train({"--checkpoint.interval=1", "--job.dump_folder=sync", "--ranks", ranks})
                  .exit_code,
              0);
    ASSERT_EQ(work.train({"--checkpoint.interval=1", "--job.dump_folder=async", "--ranks", ranks,
                          "--checkpoint.async_mode=async"})
                  .exit_code,
              0);
    for (int step = 1; step <= 6; ++step) {
      expect_same_tensors(work, cat("sync/checkpoints/step-", step),
                          cat("async/checkpoints/step-", step));
    }
  }
  // Weights that are exported in another type are in two files.
  for (const char* mode : {"disabled", "async"}) {
    ASSERT_EQ(
        work.train({"--checkpoint.export_dtype=bfloat16", "--checkpoint.interval=1", "--ranks=2",
                    cat("--checkpoint.async_mode=", mode), cat("--job.dump_folder=half_", mode)})
            .exit_code,
        0);
  }
  expect_same_tensors(work, "half_disabled/checkpoints/step-5", "half_async/checkpoints/step-5");
}

// Loading and saving hold a few megabytes at a time, whatever the size of the model: 64 MiB here,
// 32 on each rank, of which one tensor has 16. A step needs far more than the state alone and would
// hide a copy that is freed before it, so loading is compared with a run that does no step.
TEST(Resume, HoldsNoCopyOfTheModel) {
  const Workspace work;
  const std::vector<std::string> large = {"--model.dim=512",
                                          "--model.n_layers=4",
                                          "--model.vocab_size=8192",
                                          "--training.seq_len=8",
                                          "--training.local_batch_size=1",
                                          "--training.steps=1",
                                          "--ranks=2"};
  work.folder().write("large.toml", "");
  const auto peak = [&](std::vector<std::string> more, int exit_code) {
    std::vector<std::string> words = {"train", "large.toml"};
    words.insert(words.end(), large.begin(), large.end());
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = work.run(words);
    EXPECT_EQ(result.exit_code, exit_code) << result.errors;
    return result.peak_bytes;
  };
  const std::string off = "--checkpoint.enable=false";
  const int64_t alone = peak({off, "--job.dump_folder=alone"}, 0);
  const int64_t saved = peak({"--job.dump_folder=saved"}, 0);
  // The metrics are opened once the state is set, and cannot be here.
  const std::string stop = "--metrics.file=missing/m.jsonl";
  const int64_t set = peak({off, stop, "--job.dump_folder=set"}, 73);
  const int64_t loaded =
      peak({off, stop, "--job.dump_folder=set", "--checkpoint.initial_load_path=saved"}, 73);
  const int64_t resumed = peak({off, stop, "--job.dump_folder=set", "--resume=saved"}, 73);
  constexpr int64_t kMebibyte = 1 << 20;
  EXPECT_GT(set, 96 * kMebibyte);  // the rank's weights and moments
  EXPECT_LT(set, alone - 64 * kMebibyte);
  EXPECT_LT(saved - alone, 16 * kMebibyte);
  EXPECT_LT(loaded - set, 16 * kMebibyte);
  EXPECT_LT(resumed - set, 16 * kMebibyte);
  std::printf("MiB: %.1f a step, %.1f with a save; %.1f the state, %.1f loaded, %.1f resumed\n",
              static_cast<double>(alone) / kMebibyte, static_cast<double>(saved) / kMebibyte,
              static_cast<double>(set) / kMebibyte, static_cast<double>(loaded) / kMebibyte,
              static_cast<double>(resumed) / kMebibyte);
}

TEST(Resume, ASecondRunInTheFolderIsRefused) {
  const Workspace work;
  work.prepare_data();
  std::string message;
  ProcessOptions options;
  options.watch = [&](pid_t child, const std::string& output, const std::string&) {
    if (!message.empty() || output.find("step 1/") == std::string::npos) return;
    const ProcessResult second = work.run({"train", "run.toml", "--resume"});
    EXPECT_EQ(second.exit_code, 73);
    message = second.errors;
    EXPECT_NE(message.find(cat("weft: out: in use by another run (process ", child, " on ")),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("); wait for it to end, or set another job.dump_folder\n"),
              std::string::npos)
        << message;
    // The same checkpoints under another run's name, and as seen from inside.
    const std::string checkpoints = work.folder() / "out/checkpoints";
    const ProcessResult other = work.run({"train", "run.toml", "--job.dump_folder=other",
                                          "--checkpoint.folder=" + checkpoints, "--resume"});
    EXPECT_EQ(other.exit_code, 73) << other.output;
    EXPECT_TRUE(other.errors.starts_with(
        cat("weft: ", checkpoints, ": in use by another run (process ", child)))
        << other.errors;
    EXPECT_TRUE(other.errors.ends_with("); wait for it to end, or set another checkpoint.folder\n"))
        << other.errors;
    const ProcessResult prune = run_process(
        {WEFT_BINARY, "checkpoint", "prune", ".", "--keep-latest=1"}, {.folder = checkpoints});
    EXPECT_EQ(prune.exit_code, 73) << prune.output;
    EXPECT_TRUE(prune.errors.ends_with("); wait for it to end\n")) << prune.errors;
    ::kill(child, SIGTERM);
  };
  const ProcessResult first = work.train({"--training.steps=1000000"}, options);
  EXPECT_EQ(first.exit_code, 75) << first.errors;
  EXPECT_FALSE(message.empty());
  // The locks end with the run, and a run may keep everything in one folder.
  EXPECT_EQ(folder_names(work.folder() / "out/checkpoints").size(), 1U);
  ASSERT_EQ(work.train({"--job.dump_folder=flat", "--checkpoint.folder=."}).exit_code, 0);
  EXPECT_TRUE(path_exists(work.folder() / "flat/step-6/manifest.json"));
}

}  // namespace
}  // namespace weft
