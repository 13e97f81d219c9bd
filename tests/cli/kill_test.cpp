// kill -9 of each rank and of the launcher of a training job, while it compiles, trains or saves:
// reported within a second, all processes gone within five, nothing left. The test process adopts
// orphans, so it sees every one of them.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "cli/children.h"
#include "cli/workspace.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRanks = 4;
enum class Moment { Start, Step, Save };

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Named shared memory blocks, which a killed process would leave behind.
int64_t named_blocks() {
  int64_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("weft") != std::string::npos) ++found;
  }
  return found;
}

// Waits for adopted processes to end; true when none is left.
bool orphans_gone(double seconds) {
  for (const auto start = Clock::now(); seconds_between(start, Clock::now()) < seconds;) {
    if (::waitpid(-1, nullptr, WNOHANG) < 0) return errno == ECHILD;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// A job, the process to be killed, and when it was killed.
class Round {
 public:
  Round(const Workspace& work, size_t victim, Moment moment, std::mt19937& random)
      : work_(work), victim_(victim), moment_(moment), delay_(random() % 30000) {
    step_ = "step " + std::to_string(1 + random() % 20) + "/";
  }

  void run() {
    std::filesystem::remove_all(work_.folder() / "out");
    ProcessOptions options{.folder = work_.folder().path()};
    options.watch = [this](pid_t launcher, const std::string& output, const std::string& errors) {
      watch(launcher, output, errors);
    };
    const std::string steps = moment_ == Moment::Save ? "2" : "100000";
    result_ = run_process({WEFT_BINARY, "train", "run.toml", "--ranks", std::to_string(kRanks),
                           "--training.steps=" + steps, "--lr_scheduler.warmup_steps=0",
                           "--metrics.log_freq=1", "--validation.freq=1000000", "--model.dim=128"},
                          options);
    EXPECT_TRUE(orphans_gone(5)) << "a process stays behind";
    gone_ = Clock::now();
  }

  // Whether the job was still running; only then must all guarantees hold.
  bool hit() const { return killed_ != 0 && result_.exit_code != 0; }

  void expect_promises() const {
    EXPECT_FALSE(result_.timed_out);
    EXPECT_LT(seconds_between(killed_at_, gone_), 5.0);
    if (victim_ == kRanks) {
      EXPECT_EQ(result_.signal, SIGKILL);
      return;
    }
    EXPECT_EQ(result_.exit_code, 76) << result_.errors;
    const std::string name = "weft: rank " + std::to_string(victim_) + " (pid " +
                             std::to_string(killed_) + ") was killed by signal 9 (SIGKILL) ";
    EXPECT_NE(result_.errors.find(name), std::string::npos) << result_.errors;
    EXPECT_LT(seconds_between(killed_at_, named_at_), 1.0);
  }

 private:
  bool is_time(const std::string& output) const {
    if (moment_ == Moment::Start) return true;
    if (moment_ == Moment::Step) return output.find(step_) != std::string::npos;
    const auto folder = work_.folder() / "out/checkpoints";
    if (!std::filesystem::exists(folder)) return false;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with("step-")) return true;
    }
    return false;
  }

  void watch(pid_t launcher, const std::string& output, const std::string& errors) {
    if (killed_ != 0) {
      if (named_at_ == Clock::time_point() && !errors.empty()) named_at_ = Clock::now();
      return;
    }
    const std::vector<pid_t> ranks = children_of(launcher);
    if (ranks.size() != kRanks || !is_time(output)) return;
    if (moment_ != Moment::Save) ::usleep(delay_);
    killed_ = victim_ == kRanks ? launcher : ranks[victim_];
    killed_at_ = Clock::now();
    ::kill(killed_, SIGKILL);
  }

  const Workspace& work_;
  size_t victim_;  // kRanks: the launcher
  Moment moment_;
  useconds_t delay_;
  std::string step_;
  ProcessResult result_;
  pid_t killed_ = 0;
  Clock::time_point killed_at_, named_at_, gone_;
};

TEST(KilledTraining, NeverHangsAndLeavesNothingBehind) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const Workspace work;
  work.prepare_data();
  const int64_t blocks = named_blocks();
  std::mt19937 random(20261115);
  int hits[3] = {};
  for (size_t i = 0; i < 30; ++i) {
    const size_t victim = i % (kRanks + 1);
    const auto moment = static_cast<Moment>(i / (kRanks + 1) % 3);
    SCOPED_TRACE("round " + std::to_string(i));
    Round round(work, victim, moment, random);
    round.run();
    if (!round.hit()) continue;
    ++hits[static_cast<size_t>(moment)];
    round.expect_promises();
  }
  EXPECT_EQ(hits[0], 10);
  EXPECT_EQ(hits[1], 10);
  EXPECT_GE(hits[2], 1) << "saving is too short to be hit every time";
  EXPECT_EQ(named_blocks(), blocks);
}

}  // namespace
}  // namespace weft
