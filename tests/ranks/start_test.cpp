// Shard-local initialisation: the initial weights of each rank, and the memory that this takes.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#include "ranks/modes.h"
#include "ranks/ranks.h"
#include "support/short_run.h"
#include "train/session.h"

namespace {

// Bytes on the heap, now and at the peak since its last reset. Global, because operator new is.
std::atomic<int64_t> live{0};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int64_t> peak{0};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void* counted(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = live += static_cast<int64_t>(::malloc_usable_size(memory));
  int64_t most = peak;
  while (now > most && !peak.compare_exchange_weak(most, now)) continue;
  return memory;
}

void uncounted(void* memory) noexcept {
  live -= static_cast<int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void operator delete(void* memory) noexcept {
  uncounted(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  uncounted(memory);
}

namespace weft {
namespace {

// The largest bucket, in full and in f32.
int64_t largest_bucket(const Plan& plan) {
  int64_t largest = 0;
  for (const Binding& param : plan.params) {
    int64_t elements = 0;
    for (const FlatMember& member : param.members) elements += count(member.shape);
    largest = std::max(largest, elements * 4);
  }
  return largest;
}

// Bytes that initialize() takes in addition to the arena, the maximum over the ranks.
int64_t bytes_of_start(const PreparedRun& run) {
  std::mutex one_at_a_time;
  int64_t most = 0;
  const Mesh mesh = mesh_of(run.config, run.ranks);
  const auto errors = run_ranks(mesh, {}, [&](Communicator& comm, Device&) {
    Session session(run.config, run.compiled, comm);
    comm.barrier();
    {
      const std::lock_guard lock(one_at_a_time);
      const int64_t before = live;
      peak = before;
      session.initialize(7);
      most = std::max(most, peak - before);
    }
    comm.barrier();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return most;
}

TEST(RankStart, AtTheStartARankMakesItsShardBucketByBucket) {
  const Overrides model = with(kTiny, {"--model.dim=64"});
  for (const char* precision : {"float32", "bfloat16"}) {
    for (const std::string name : {"fsdp", "hsdp", "zero1"}) {
      SCOPED_TRACE(cat(name, " ", precision));
      const PreparedRun run = prepare_run(
          4,
          with(with(model, mode(name, 4)), {cat("--training.mixed_precision_param=", precision)}));
      const int64_t bucket = largest_bucket(run.compiled.plan);
      const int64_t took = bytes_of_start(run);
      EXPECT_GT(took, 0);
      // This rank owns a quarter of a bucket, and a growing vector holds two copies of it.
      EXPECT_LE(took, name == "fsdp" ? bucket / 2 : bucket);
    }
  }
}

TEST(RankStart, InitialWeightsAreTheSameOnEveryMesh) {
  const std::vector<float> alone = short_run(kTiny, 0).params;
  for (const int64_t ranks : {2, 3, 4, 8}) {
    for (const std::string name : {"ddp", "zero1", "fsdp", "hsdp"}) {
      if (name == "hsdp" && ranks % 2 != 0) continue;
      SCOPED_TRACE(cat(name, " on ", ranks));
      EXPECT_EQ(short_run_on_ranks(ranks, with(kTiny, mode(name, ranks)), 0).params, alone);
    }
  }
}

}  // namespace
}  // namespace weft
