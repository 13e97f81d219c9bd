// An interrupted run says so at once, finishes its step, skips validation and saves its weights; a
// second Ctrl-C ends it at once. With one rank, with ranks as processes and with ranks as threads.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <chrono>

#include "checkpoint/safetensors.h"
#include "cli/workspace.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kNotice = "stopping after this step";

struct Way {
  const char* name;
  std::vector<std::string> flags;
  bool to_group = false;  // the signal goes to the entire process group
};

const Way kWays[] = {{"alone", {}},
                     {"threads", {"--ranks=2", "--transport=threads"}},
                     {"launcher", {"--ranks=2"}},
                     {"group", {"--ranks=2"}, true}};

void send(const Way& way, pid_t process, int signal) {
  ::kill(way.to_group ? -process : process, signal);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Trains forever; sends the signal once `seen` has been printed.
ProcessResult interrupt(const Workspace& work, const Way& way, int signal, const std::string& seen,
                        std::vector<std::string> flags) {
  bool sent = false;
  ProcessOptions options{.own_group = true};
  options.watch = [&](pid_t child, const std::string& output, const std::string&) {
    if (sent || output.find(seen) == std::string::npos) return;
    sent = true;
    send(way, child, signal);
  };
  flags.insert(flags.end(), {"--training.steps=1000000", "--metrics.log_freq=1"});
  flags.insert(flags.end(), way.flags.begin(), way.flags.end());
  return work.train(flags, options);
}

void expect_clean_end(const Workspace& work, const ProcessResult& result, int signal) {
  const bool interrupt = signal == SIGINT;
  EXPECT_EQ(result.exit_code, interrupt ? 130 : 75) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(count(result.output, kNotice), 1U) << result.output;
  const auto lines = work.metrics("out/metrics.jsonl");
  ASSERT_FALSE(lines.empty());
  EXPECT_FALSE(lines.back().contains("validation_loss"));
  const std::string name = interrupt ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
  const std::string said =
      "interrupted by " + name + " after step " + lines.back().at("step").dump() + "\n";
  EXPECT_NE(result.output.find(said), std::string::npos) << result.output;
  EXPECT_NO_THROW(SafetensorsFile::open(work.folder() / work.saved("out") + "/model.safetensors"));
}

class Interrupt : public testing::TestWithParam<Way> {};

TEST_P(Interrupt, EndsCleanlyAfterTheStep) {
  const Workspace work;
  work.prepare_data();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const ProcessResult result =
        interrupt(work, GetParam(), signal, "step 5/", {"--validation.freq=1000000"});
    expect_clean_end(work, result, signal);
  }
}

// The validation alone would take hours.
TEST_P(Interrupt, AbandonsAValidation) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = interrupt(work, GetParam(), SIGINT, "step 1/",
                                         {"--validation.freq=1", "--validation.steps=100000000"});
  expect_clean_end(work, result, SIGINT);
  EXPECT_EQ(result.output.find("validation loss"), std::string::npos) << result.output;
}

// After the last step only the validation is skipped, and that is an interruption too.
TEST_P(Interrupt, SkipsTheLastValidation) {
  const Workspace work;
  work.prepare_data();
  bool sent = false;
  ProcessOptions options{.own_group = true};
  options.watch = [&](pid_t child, const std::string& output, const std::string&) {
    if (sent || output.find("step 6/6") == std::string::npos) return;
    sent = true;
    send(GetParam(), child, SIGTERM);
  };
  std::vector<std::string> flags = {"--validation.freq=1000000", "--validation.steps=100000000"};
  flags.insert(flags.end(), GetParam().flags.begin(), GetParam().flags.end());
  expect_clean_end(work, work.train(flags, options), SIGTERM);
}

// One step would take minutes: the first signal is announced during it, the second ends it.
TEST_P(Interrupt, ASecondOneEndsAtOnce) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // orphans become children of this process
  const Workspace work;
  work.prepare_data();
  const Way& way = GetParam();
  Clock::time_point announced, ended;
  bool sent = false, sent_again = false;
  ProcessOptions options{.own_group = true};
  options.watch = [&](pid_t child, const std::string& output, const std::string&) {
    if (!sent && output.find("parameters") != std::string::npos) {
      sent = true;
      send(way, child, SIGINT);
    }
    if (announced == Clock::time_point() && output.find(kNotice) != std::string::npos) {
      announced = Clock::now();
    }
    const bool waited = Clock::now() - announced > std::chrono::milliseconds(200);
    if (announced == Clock::time_point() || !waited || sent_again) return;
    sent_again = true;
    ended = Clock::now();
    send(way, child, SIGINT);
  };
  std::vector<std::string> flags = {"--training.local_batch_size=1",
                                    "--training.global_batch_size=100000"};
  flags.insert(flags.end(), way.flags.begin(), way.flags.end());
  const ProcessResult result = work.train(flags, options);
  const std::chrono::duration<double> took = Clock::now() - ended;
  ASSERT_TRUE(sent_again) << result.output;
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(count(result.output, kNotice), 1U) << result.output;
  EXPECT_EQ(result.output.find("step 1/"), std::string::npos) << result.output;
  EXPECT_LT(took.count(), 5.0);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process stays behind";
  for (const auto& [name, text] : work.tree()) {
    EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cli, Interrupt, testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

// Where HUP is ignored, as under nohup, it stays ignored.
TEST(InterruptUnderNohup, AHangupIsIgnored) {
  const Workspace work;
  work.prepare_data();
  for (const std::string ranks : {"1", "2"}) {
    int sent = 0;
    ProcessOptions options{.folder = work.folder().path()};
    options.watch = [&](pid_t child, const std::string& output, const std::string&) {
      if (sent == 0 && output.find("step 5/") != std::string::npos) ::kill(child, SIGHUP), ++sent;
      if (sent == 1 && output.find("step 50/") != std::string::npos) ::kill(child, SIGTERM), ++sent;
    };
    const ProcessResult result = run_process(
        {"/bin/sh", "-c",
         "trap '' HUP; exec " WEFT_BINARY
         " train run.toml --overwrite --training.steps=1000000 --validation.freq=1000000 "
         "--metrics.log_freq=1 --ranks=" +
             ranks},
        options);
    expect_clean_end(work, result, SIGTERM);
  }
}

}  // namespace
}  // namespace weft
