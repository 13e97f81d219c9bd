// Work on a few threads: every index once, in any order, by any worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace weft {

// Calls work(worker, index) for every index below `count` on `threads` workers, of which the caller
// is one. All indices are worked on even when some fail; then the failure of the smallest index is
// thrown, so that it does not depend on the number of threads.
void parallel_for(int threads, size_t count, const std::function<void(int, size_t)>& work);

// `threads`, or the number of usable cores when it is 0; at most kMaxThreads.
inline constexpr int64_t kMaxThreads = 4096;
int thread_count(int64_t threads);

}  // namespace weft
