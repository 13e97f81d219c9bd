// Every mesh against stored PyTorch traces, over threads; cli/verify_test covers processes.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "config/load.h"
#include "ranks/modes.h"
#include "ranks/ranks.h"
#include "tools/verify.h"
#include "train/session.h"

namespace weft {
namespace {

struct TraceMesh {
  std::string name;
  int64_t ranks = 1;
  bool batch8 = false;  // for meshes that share the batch
  Overrides overrides;
};

const std::string kTp = "--parallelism.tensor_parallel_degree=";
const std::string kCp = "--parallelism.context_parallel_degree=";
const std::string kReplicate = "--parallelism.data_parallel_replicate_degree=";
const std::string kRing = "--parallelism.context_parallel_method=ring";

const TraceMesh kMeshes[] = {
    {"tp2", 2, false, {kTp + "2"}},
    {"tp4", 4, false, {kTp + "4"}},
    {"cp2", 2, false, {kCp + "2"}},
    {"cp4", 4, false, {kCp + "4"}},
    {"ring4", 4, false, {kCp + "4", kRing}},
    {"cp2_tp2", 4, false, {kCp + "2", kTp + "2"}},
    {"fsdp2_tp2", 4, true, {kTp + "2"}},
    {"fsdp2_cp2", 4, true, {kCp + "2"}},
    {"hsdp_tp2", 8, true, {kReplicate + "2", kTp + "2"}},
};

// These have traces of both batch sizes.
bool has_small_batch(const std::string& model) {
  return model == "gpt2" || model == "llama3";
}

class MeshTraces : public testing::TestWithParam<std::tuple<std::string, TraceMesh>> {};

const std::string kEp = "--parallelism.expert_parallel_degree=";

// The experts of every rank are some of all, or a part of each.
const TraceMesh kExpertMeshes[] = {
    {"fsdp4", 4, true, {}},
    {"fsdp4_ep2", 4, true, {kEp + "2"}},
    {"fsdp4_ep4", 4, true, {kEp + "4"}},
    {"fsdp2_tp2", 4, true, {kTp + "2"}},
    {"fsdp2_tp2_ep2", 4, true, {kTp + "2", kEp + "2"}},
    {"fsdp2_tp2_ep4", 4, true, {kTp + "2", kEp + "4"}},
    {"fsdp2_cp2_ep2", 4, true, {kCp + "2", kEp + "2"}},
    {"fsdp4_ep2_recomputed", 4, true, {kEp + "2", "--activation_checkpoint.mode=full"}},
    {"fsdp4_ep4_replayed", 4, true, {kEp + "4", "--parallelism.expert_capacity_factor=0.25"}},
};

TEST_P(MeshTraces, AgreeWithPyTorch) {
  const auto& [model, mesh] = GetParam();
  const std::string folder = cat(WEFT_TESTS_DIR, "/numerics/", model,
                                 mesh.batch8 || !has_small_batch(model) ? "_batch8" : "");
  const TraceRun run = open_trace(folder, parse_config("", "test", mesh.overrides), mesh.ranks);
  const auto errors = run_ranks(mesh_of(run.config, mesh.ranks), {.comm = comm_options(run.config)},
                                [&](Communicator& comm, Device&) {
                                  const std::vector<Comparison> found = verify_trace(run, {}, comm);
                                  require(found.size() == 4, "compared less than four quantities");
                                  for (const Comparison& one : found) {
                                    require(one.passed() && one.worst > 0,
                                            cat(one.quantity, ": ", one.worst, " at ", one.where));
                                  }
                                });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, MeshTraces,
                         testing::Combine(testing::Values("gpt2", "llama3", "qwen3", "deepseek_v3",
                                                          "llama4"),
                                          testing::ValuesIn(kMeshes)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param).name);
                         });
INSTANTIATE_TEST_SUITE_P(Experts, MeshTraces,
                         testing::Combine(testing::Values("qwen3_moe", "deepseek_v3", "llama4"),
                                          testing::ValuesIn(kExpertMeshes)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param).name);
                         });

}  // namespace
}  // namespace weft
