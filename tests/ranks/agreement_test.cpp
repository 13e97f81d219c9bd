// Ranks whose plans or configs differ detect it before the first step and report the difference.
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/compile.h"
#include "compile/config_choices.h"
#include "config/load.h"
#include "config/validate.h"
#include "ranks/ranks.h"
#include "train/agreement.h"

namespace weft {
namespace {

constexpr std::string_view kToml =
    "[model]\nname = \"gpt2\"\nflavor = \"tiny\"\n[training]\nseq_len = 32\n";

// Runs each rank with its own overrides; returns the error of each.
std::vector<std::string> agree(Transport transport,
                               const std::vector<std::vector<std::string>>& overrides) {
  const auto ranks = static_cast<int64_t>(overrides.size());
  return run_ranks(
      make_mesh({{"dp_shard", ranks}}), {.transport = transport}, [&](Communicator& comm, Device&) {
        const Config config =
            parse_config(kToml, "run.toml", overrides[static_cast<size_t>(comm.rank())]);
        validate(config, ranks, config_choices());
        const Compiled compiled = compile(config, {.data_vocab = 0, .ranks = ranks});
        check_agreement(config, compiled.plan, comm);
      });
}

class Agreement : public testing::TestWithParam<Transport> {};

TEST_P(Agreement, RanksWithTheSameConfigAgree) {
  for (const std::string& error : agree(GetParam(), {{}, {}, {}})) EXPECT_EQ(error, "");
}

TEST_P(Agreement, APlanThatDiffersIsShownWithTheKeysThatDiffer) {
  const auto errors = agree(GetParam(), {{}, {}, {"--training.seq_len=16"}});
  const std::string expected =
      "the ranks have different plans: rank 2 has training.seq_len = 16, rank 0 has "
      "training.seq_len = 32; line ";
  EXPECT_NE(errors[0].find(expected), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("\" on rank 2, \""), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("\" on rank 0; start every rank with the same config and build"),
            std::string::npos)
      << errors[0];
}

// Another mesh of as many ranks; it would hang in the first collective.
TEST_P(Agreement, MeshesThatDifferAreReported) {
  const auto errors = agree(GetParam(), {{}, {}, {}, {"--parallelism.tensor_parallel_degree=2"}});
  EXPECT_NE(errors[0].find("the ranks have different plans: rank 3 has "
                           "parallelism.tensor_parallel_degree = 2, rank 0 has "
                           "parallelism.tensor_parallel_degree = 1"),
            std::string::npos)
      << errors[0];
}

TEST_P(Agreement, AConfigThatDiffersIsEnough) {
  const auto errors =
      agree(GetParam(), {{}, {"--optimizer.lr=0.5", "--training.steps=7", "--debug.seed=3"}});
  EXPECT_NE(errors[0].find("the ranks have different configs: rank 1 has training.steps = 7, rank "
                           "0 has training.steps = "),
            std::string::npos)
      << errors[0];
  EXPECT_NE(errors[0].find("rank 1 has optimizer.lr = 0.5"), std::string::npos) << errors[0];
}

INSTANTIATE_TEST_SUITE_P(Transports, Agreement, testing::Values(Transport::Threads, Transport::Shm),
                         [](const auto& transport) {
                           return transport.param == Transport::Threads ? "threads" : "shm";
                         });

}  // namespace
}  // namespace weft
