#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/machine.h"

namespace weft {

void parallel_for(int threads, size_t count, const std::function<void(int, size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t failed = count;
  std::exception_ptr failure;
  const auto run = [&](int worker) {
    for (size_t index; (index = next.fetch_add(1)) < count;) {
      try {
        work(worker, index);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (index < failed) {
          failed = index;
          failure = std::current_exception();
        }
      }
    }
  };
  std::vector<std::thread> others;
  const int useful = static_cast<int>(std::min<size_t>(static_cast<size_t>(threads), count));
  for (int worker = 1; worker < useful; ++worker) others.emplace_back(run, worker);
  run(0);
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

int thread_count(int64_t threads) {
  CHECK(threads >= 0 && threads <= kMaxThreads, threads);
  return static_cast<int>(threads > 0 ? threads : usable_cores());
}

}  // namespace weft
