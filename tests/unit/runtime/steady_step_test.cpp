// A step that has run before allocates nothing and locks nothing, on any thread. The compute stream
// makes system calls only to wake the waiting host at the end and to sleep until the next step.
// This program counts by replacing functions of the C library.
#include <gtest/gtest.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <mutex>

#include "config/load.h"
#include "train/session.h"
#include "train/training_data.h"

namespace {

// NOLINTBEGIN(*-avoid-non-const-global-variables): the functions below have no other way to them
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> locks{0};
std::atomic<int64_t> system_calls{0};  // of threads other than the host's
thread_local bool is_host = false;
// NOLINTEND(*-avoid-non-const-global-variables)

void count(std::atomic<int64_t>& counter) {
  if (counting.load(std::memory_order_relaxed)) counter.fetch_add(1, std::memory_order_relaxed);
}

using LockFn = int (*)(pthread_mutex_t*);
using SyscallFn = long (*)(long, long, long, long, long, long, long);
const auto real_lock = reinterpret_cast<LockFn>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
const auto real_syscall = reinterpret_cast<SyscallFn>(dlsym(RTLD_NEXT, "syscall"));

}  // namespace

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the C library's names
void* __libc_malloc(size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

void* malloc(size_t bytes) {
  count(allocations);
  return __libc_malloc(bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  count(allocations);
  return __libc_memalign(alignment, bytes);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  count(locks);
  // Libraries lock while they are loaded, one thread at a time.
  return real_lock != nullptr ? real_lock(mutex) : 0;
}

long syscall(long number, ...) {
  if (!is_host) count(system_calls);
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"

namespace weft {
namespace {

constexpr int64_t kRuns = 5;

Config small(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"--training.local_batch_size=2", "--training.seq_len=16",
                                       "--model.dim=32", "--model.n_layers=2"});
  return parse_config("", "test", overrides);
}

// Counts over runs of a full step, after two warm-up runs.
void count_runs(const std::vector<std::string>& overrides) {
  const Config config = small(overrides);
  Session session(config, compile(config));
  session.initialize(1);
  for (int64_t step = 0; step < 2; ++step) {
    session.train_step({.step = step, .seed = 1, .lr = 1e-3}, [](int64_t, Batch& batch) {
      batch.tokens.assign(32, 1);
      batch.targets.assign(32, 2);
    });
  }
  EXPECT_GT(session.compiled().plan.program(ProgramKind::Last).size(), 40u);
  is_host = true;
  allocations = locks = system_calls = 0;
  counting = true;
  for (int64_t i = 0; i < kRuns; ++i) session.executor().run(ProgramKind::Last);
  counting = false;
  is_host = false;
}

TEST(SteadyStep, TheCountersCount) {
  counting = true;
  allocations = locks = 0;
  {
    std::mutex mutex;
    const std::lock_guard lock(mutex);
    const std::vector<int> some(100);
    EXPECT_EQ(some.back(), 0);
  }
  counting = false;
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(locks, 1);
}

// Batches are exchanged with the thread that produces them.
TEST(SteadyStep, BatchesAreTakenWithoutAllocatingOrLocking) {
  const TrainingData data(small({}), {}, 256);
  BatchPrefetcher ahead(data, {0, 2});
  std::vector<Batch> batches(2);
  for (int step = 0; step < 2 + kRuns; ++step) {
    if (step == 2) {
      allocations = locks = 0;
      counting = true;
    }
    for (Batch& batch : batches) ahead.take(batch);
  }
  counting = false;
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(locks, 0);
}

TEST(SteadyStep, NeitherAllocatesNorLocks) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    for (const std::vector<std::string>& model :
         {std::vector<std::string>{"--model.name=gpt2", "--model.dropout=0.1"},
          std::vector<std::string>{"--model.name=llama", "--model.flavor=debug"}}) {
      std::vector<std::string> overrides = model;
      overrides.push_back("--device.threads=2");
      overrides.push_back(cat("--training.mixed_precision_param=", dtype));
      count_runs(overrides);
      EXPECT_EQ(allocations, 0) << model.front() << " " << dtype;
      EXPECT_EQ(locks, 0) << model.front() << " " << dtype;
    }
  }
}

TEST(SteadyStep, TheComputeStreamCallsTheSystemOnlyBetweenSteps) {
  count_runs({"--model.name=gpt2", "--device.threads=1"});
  EXPECT_LE(system_calls, 2 * kRuns);
}

}  // namespace
}  // namespace weft

#else

TEST(SteadyStep, IsCounted) {
  GTEST_SKIP() << "a sanitizer, or another C library, replaces the counters";
}

#endif
