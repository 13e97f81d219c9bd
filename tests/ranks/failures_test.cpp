// What the ranks report when one of them fails, exits, hangs or makes a different call.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "ranks/ranks.h"
#include "runtime/comm/host_work.h"
#include "runtime/comm/launcher.h"
#include "support/read_file.h"

namespace weft {
namespace {

const Mesh kFour = make_mesh({{"dp", 4}});
const Mesh kTwo = make_mesh({{"dp", 2}});

void sleep_ms(int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// A sum that needs no arena.
float sum_of(Communicator& comm, std::string_view axis, float value, int64_t channel = 0) {
  const Tensor tensor{&value, DType::F32, {}};
  comm.all_reduce({axis, channel}, {&tensor, 1});
  return value;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(RankFailures, AbortWakesEverybody) {
  for (const int64_t waiting_ms : {0, 1, 200}) {
    const auto errors = run_ranks(kFour, {}, [&](Communicator& comm, Device&) {
      require(sum_of(comm, "dp", 1) == 4, "wrong sum");
      if (comm.rank() != 2) {
        sum_of(comm, "dp", 1);
        return;
      }
      sleep_ms(waiting_ms);
      require(!comm.poll_error().has_value(), "aborted too early");
      comm.abort("cannot continue");
      require(comm.poll_error() == "rank 2: cannot continue", "no error to poll");
    });
    for (const size_t rank : {0, 1, 3}) EXPECT_EQ(errors[rank], "rank 2: cannot continue");
    EXPECT_EQ(errors[2], "");
  }
}

TEST(RankFailures, AnExceptionEndsTheOthersToo) {
  const auto errors = run_ranks(kFour, {}, [&](Communicator& comm, Device& device) {
    auto* memory = static_cast<float*>(comm.allocate(1 << 20, device));
    const Tensor tensor{memory, DType::F32, {1 << 18}};
    std::memset(memory, 0, 1 << 20);
    try {
      for (int i = 0; i < 100; ++i) {
        if (comm.rank() == 1 && i == 20) comm.abort("broken");
        comm.all_reduce({"dp", 0}, {&tensor, 1});
      }
    } catch (...) {
      comm.release(memory, device);
      throw;
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "rank 1: broken");
}

TEST(RankFailures, ARankThatLeavesIsMissed) {
  const auto errors = run_ranks(kTwo, {}, [](Communicator& comm, Device&) {
    if (comm.rank() == 0) return;
    comm.start_step(3);
    comm.report_progress(0, "step step 4 all_reduce (bwd)");
    sum_of(comm, "dp", 1);
  });
  EXPECT_EQ(errors[1],
            "rank 0 ended while rank 1 waits for it at training step 3, in step step 4 all_reduce "
            "(bwd)");
}

TEST(RankFailures, RanksThatDisagreeFindOut) {
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    const auto errors =
        run_ranks(kTwo, {.transport = transport}, [](Communicator& comm, Device& device) {
          void* memory = comm.allocate(1 << 16, device);
          const Tensor tensor{memory, DType::F32, {comm.rank() == 0 ? 4096 : 8192}};
          comm.all_reduce({"dp", 0}, {&tensor, 1});
        });
    EXPECT_TRUE(contains(errors[0], "ranks disagree: rank ")) << errors[0];
    EXPECT_TRUE(contains(errors[0], "all_reduce of 4096 elements")) << errors[0];
    EXPECT_TRUE(contains(errors[0], "all_reduce of 8192 elements")) << errors[0];
  }
}

TEST(RankFailures, AHungRankIsNamedWithWhatItAndTheOthersDo) {
  RanksOptions options;
  options.comm.timeout_seconds = 0.3;
  const auto errors = run_ranks(kFour, options, [](Communicator& comm, Device&) {
    comm.start_step(7);
    if (comm.rank() == 1) {
      comm.report_progress(0, "step step 2 matmul (layers.0 fwd)");
      sleep_ms(1500);
      require(comm.poll_error().has_value(), "nobody missed this rank");
      return;
    }
    comm.report_progress(1, "step step 5 reduce_scatter (bwd)");
    sum_of(comm, "dp", 1, 1);
  });
  for (const size_t rank : {0, 2, 3}) {
    EXPECT_TRUE(contains(errors[rank], "rank 1 hangs: no heartbeat for 0.")) << errors[rank];
    EXPECT_TRUE(contains(errors[rank],
                         "at training step 7, in step step 2 matmul (layers.0 fwd), while rank "))
        << errors[rank];
    EXPECT_TRUE(
        contains(errors[rank], " waits at training step 7, in step step 5 reduce_scatter (bwd); "))
        << errors[rank];
    EXPECT_EQ(errors[rank], errors[0]);
  }
  EXPECT_EQ(errors[1], "");
}

// Rank 0 waits for 1 along one axis, and 1 for 3 along the other: 3 is to blame.
TEST(RankFailures, BlameGoesThroughThoseWhoOnlyWait) {
  RanksOptions options;
  options.comm.timeout_seconds = 0.3;
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  const auto errors = run_ranks(mesh, options, [](Communicator& comm, Device&) {
    if (comm.rank() == 3) return sleep_ms(1500);
    sum_of(comm, comm.rank() == 0 ? "b" : "a", 1);
    if (comm.rank() == 1) sum_of(comm, "b", 1);
  });
  EXPECT_TRUE(contains(errors[0], "rank 3 hangs")) << errors[0];
  EXPECT_TRUE(contains(errors[1], "rank 3 hangs")) << errors[1];
}

// Heartbeats come twenty times as often as the timeout requires, as a busy machine may delay some.
TEST(RankFailures, WorkThatShowsSignsOfLifeIsNotAHang) {
  RanksOptions options;
  options.comm.timeout_seconds = 1;
  const auto errors = run_ranks(kTwo, options, [](Communicator& comm, Device&) {
    for (int i = 0; comm.rank() == 1 && i < 30; ++i) {
      comm.report_progress(0, cat("loading part ", i));
      sleep_ms(50);
    }
    sum_of(comm, "dp", 1);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// One kernel without a heartbeat, several times as long as the others' timeout.
TEST(RankFailures, ALongComputationIsNotAHang) {
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    RanksOptions options{.transport = transport};
    options.comm.timeout_seconds = 0.3;
    const auto errors = run_ranks(kTwo, options, [](Communicator& comm, Device&) {
      const auto start = std::chrono::steady_clock::now();
      while (comm.rank() == 1 &&
             std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1200)) {
      }
      sum_of(comm, "dp", 1);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(RankFailures, LongHostWorkIsNotAHang) {
  RanksOptions options;
  options.comm.timeout_seconds = 0.5;
  const auto errors = run_ranks(kTwo, options, [](Communicator& comm, Device&) {
    if (comm.rank() == 1) {
      const HostWork work(comm, "saving weights");
      sleep_ms(1500);
    }
    sum_of(comm, "dp", 1);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Ranks 2 and 3 have nothing to send and wait for those that do.
TEST(RankFailures, ASlowTransferIsNotAHang) {
  RanksOptions options;
  options.comm = {.timeout_seconds = 0.5, .delay = {.latency_seconds = 1.5}};
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  const auto errors = run_ranks(mesh, options, [](Communicator& comm, Device&) {
    if (comm.coordinate("a") == 0) sum_of(comm, "b", 1);
    comm.barrier();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(RankFailures, RanksThatWaitForEachOtherAreFound) {
  RanksOptions options;
  options.comm.timeout_seconds = 0.3;
  const auto errors = run_ranks(
      kTwo, options, [](Communicator& comm, Device&) { sum_of(comm, "dp", 1, comm.rank()); });
  for (const std::string& error : errors) {
    EXPECT_TRUE(contains(error, "the ranks wait for each other")) << error;
  }
}

TEST(RankFailures, ASlowLinkTakesItsTime) {
  RanksOptions options;
  options.comm.delay = {.bytes_per_second = 1e6, .latency_seconds = 0.01};
  const auto errors = run_ranks(kTwo, options, [](Communicator& comm, Device& device) {
    void* memory = comm.allocate(200000, device);
    std::memset(memory, 0, 200000);
    const Tensor tensor{memory, DType::F32, {25000}};
    const auto start = std::chrono::steady_clock::now();
    comm.all_reduce({"dp", 0}, {&tensor, 1});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    comm.release(memory, device);
    // Half of 100,000 bytes each way, twice: 0.1 s, plus the latency.
    require(took.count() >= 0.11 && took.count() < 0.5, cat("took ", took.count(), " s"));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Runs over processes; returns the messages and the exit code.
struct Outcome {
  int code = 0;
  std::vector<std::string> messages;
};

Outcome launch(int64_t ranks, const std::function<int(Communicator&)>& body,
               double timeout_seconds = 10) {
  Outcome outcome;
  LaunchOptions options;
  options.ranks = ranks;
  options.grace_seconds = 0.5;
  options.report = [&](const std::string& message) { outcome.messages.push_back(message); };
  const Mesh mesh = make_mesh({{"dp", ranks}});
  outcome.code = launch_ranks(options, [&](int64_t rank, ShmJob& job) {
    const auto comm = job.connect({mesh, rank}, {.timeout_seconds = timeout_seconds, .delay = {}});
    return body(*comm);
  });
  return outcome;
}

// Unless the ranks are to finish a step first, a signal to the launcher ends all of them.
TEST(Launcher, AStopSignalEndsTheRanksAtOnce) {
  const auto before = std::signal(SIGHUP, SIG_DFL);  // the test may run under nohup
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), {SIGTERM, 75}, {SIGHUP, 75}}) {
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = launch(3, [signal = signal](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 1) ::kill(::getppid(), signal);
      ::sleep(60);
      return 0;
    });
    EXPECT_EQ(outcome.code, code);
    EXPECT_TRUE(outcome.messages.empty()) << outcome.messages[0];
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
  std::signal(SIGHUP, before);
}

TEST(Launcher, NamesAKilledRankAndWhatItDid) {
  const Outcome outcome = launch(4, [](Communicator& comm) {
    comm.start_step(12);
    sum_of(comm, "dp", 1);
    comm.report_progress(0, "step step 3 matmul (layers.1 fwd)");
    if (comm.rank() == 2) ::raise(SIGKILL);
    sum_of(comm, "dp", 1);
    return 0;
  });
  EXPECT_EQ(outcome.code, 76);
  ASSERT_EQ(outcome.messages.size(), 2u);
  EXPECT_TRUE(outcome.messages[0].starts_with("rank 2 (pid ")) << outcome.messages[0];
  EXPECT_TRUE(outcome.messages[0].ends_with(
      ") was killed by signal 9 (SIGKILL) at training step 12, in step step 3 matmul (layers.1 "
      "fwd)"))
      << outcome.messages[0];
  EXPECT_EQ(outcome.messages[1], "the other 3 ranks stopped");
}

TEST(Launcher, NamesAStoppedRankInsideACollective) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = launch(
      3,
      [](Communicator& comm) {
        comm.report_progress(1, "step step 8 all_reduce (bwd)");
        for (int i = 0; i < 1000000; ++i) {
          if (comm.rank() == 1 && i == 100) ::raise(SIGSTOP);
          sum_of(comm, "dp", 1, 1);
        }
        return 0;
      },
      0.5);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(outcome.code, 79);
  ASSERT_EQ(outcome.messages.size(), 2u);
  EXPECT_TRUE(outcome.messages[0].starts_with("rank 1 hangs: ")) << outcome.messages[0];
  EXPECT_EQ(outcome.messages[1], "the other 2 ranks stopped; killed after 0.5 s: 1");
  EXPECT_LT(took.count(), 5.0);
}

TEST(Launcher, ShowsTheFirstErrorAndCollapsesTheRest) {
  const Outcome outcome = launch(4, [](Communicator& comm) {
    if (comm.rank() == 3) throw UserError(ExitCode::InputFile, "train.bin: too short");
    while (true) sum_of(comm, "dp", 1);
    return 0;
  });
  EXPECT_EQ(outcome.code, 65);
  const std::vector<std::string> expected = {"rank 3: train.bin: too short",
                                             "the other 3 ranks stopped"};
  EXPECT_EQ(outcome.messages, expected);
}

TEST(Launcher, SaysOnceWhatEveryRankSays) {
  const Outcome outcome = launch(3, [](Communicator& comm) -> int {
    comm.barrier();
    throw UserError(ExitCode::Config, "model.dim: found 7, expected a multiple of 8");
  });
  EXPECT_EQ(outcome.code, 64);
  ASSERT_FALSE(outcome.messages.empty());
  EXPECT_TRUE(contains(outcome.messages[0], "model.dim: found 7, expected a multiple of 8"));
}

TEST(Launcher, PassesOnTheCodeAllRanksReturn) {
  const Outcome outcome = launch(2, [](Communicator& comm) {
    comm.barrier();
    return 75;
  });
  EXPECT_EQ(outcome.code, 75);
  EXPECT_TRUE(outcome.messages.empty());
}

// Names behind the file descriptors of this process.
std::vector<std::string> open_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    names.push_back(std::filesystem::read_symlink(entry.path(), error).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Launcher, ClosesAndUnmapsEverything) {
  const std::vector<std::string> before = open_files();
  launch(2, [](Communicator& comm) {
    comm.barrier();
    return 0;
  });
  EXPECT_EQ(open_files(), before);
  EXPECT_FALSE(contains(read_file("/proc/self/maps"), "memfd:weft"));
}

TEST(Launcher, NoticesARankThatExitsOnItsOwn) {
  const Outcome outcome = launch(2, [](Communicator& comm) {
    if (comm.rank() == 0) ::_exit(3);
    sum_of(comm, "dp", 1);
    return 0;
  });
  EXPECT_EQ(outcome.code, 76);
  EXPECT_TRUE(contains(outcome.messages.at(0), "exited with code 3")) << outcome.messages[0];
}

}  // namespace
}  // namespace weft
