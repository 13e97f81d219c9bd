#include "tools/launch_info.h"

#include <gtest/gtest.h>

#include <map>

#include "support/user_error.h"

namespace weft {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<LaunchInfo> read(const Variables& variables) {
  return read_launch_info([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  return user_error_of([&] { read(variables); });
}

const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_NAMESPACE", "prterun-7"}};
const Variables kTorchrun = {{"RANK", "5"},        {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},  {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};

Variables slurm(const std::string& rank, const std::string& host, const std::string& local) {
  return {{"SLURM_PROCID", rank},   {"SLURM_STEP_NUM_TASKS", "11"},
          {"SLURM_LOCALID", local}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
          {"SLURM_NODEID", host},   {"SLURM_JOB_ID", "42"},
          {"SLURM_STEP_ID", "0"}};
}

TEST(LaunchInfo, NoLauncherOrASingleRankIsNone) {
  EXPECT_FALSE(read({}).has_value());
  EXPECT_FALSE(read({{"WORLD_SIZE", "1"}, {"RANK", "0"}}).has_value());
  // The batch script of a Slurm job, which is no step.
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).has_value());
}

TEST(LaunchInfo, Mpirun) {
  const LaunchInfo info = read(kMpirun).value();
  EXPECT_EQ(info.launcher, "mpirun");
  EXPECT_EQ(info.job, "mpirun prterun-7");
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.ranks, 4);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_ranks, 2);
}

TEST(LaunchInfo, Torchrun) {
  const LaunchInfo info = read(kTorchrun).value();
  EXPECT_EQ(info.launcher, "torchrun");
  EXPECT_EQ(info.job, "torchrun a 29500");
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.local_ranks, 4);
}

TEST(LaunchInfo, SrunCountsTheRanksOfEveryHost) {
  EXPECT_EQ(read(slurm("3", "0", "3")).value().local_ranks, 4);
  EXPECT_EQ(read(slurm("7", "1", "3")).value().local_ranks, 4);
  EXPECT_EQ(read(slurm("10", "2", "2")).value().local_ranks, 3);
  EXPECT_EQ(read(slurm("10", "2", "2")).value().job, "srun 42 0");
  EXPECT_EQ(error_of(slurm("10", "3", "2")),
            "environment: SLURM_STEP_TASKS_PER_NODE=4(x2),3 with SLURM_NODEID=3, expected the "
            "tasks of every node");
}

// torchrun under srun: each of Slurm's tasks starts several ranks.
TEST(LaunchInfo, TheInnermostLauncherCounts) {
  Variables both = slurm("1", "1", "0");
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(read(both).value().launcher, "torchrun");
}

TEST(LaunchInfo, ContradictionsAreErrors) {
  Variables variables = kTorchrun;
  variables.erase("LOCAL_RANK");
  EXPECT_EQ(error_of(variables),
            "environment: WORLD_SIZE is set and LOCAL_RANK is not, expected both, as torchrun sets "
            "them; set it or unset WORLD_SIZE");
  variables = kMpirun;
  variables["OMPI_COMM_WORLD_RANK"] = "4";
  EXPECT_EQ(error_of(variables),
            "environment: OMPI_COMM_WORLD_RANK=4, expected a whole number from 0 to 3");
  variables = kMpirun;
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "two";
  EXPECT_EQ(error_of(variables),
            "environment: OMPI_COMM_WORLD_LOCAL_SIZE=two, expected a whole number from 1 to 4");
}

}  // namespace
}  // namespace weft
