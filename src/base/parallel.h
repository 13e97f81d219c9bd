// Parallel loops: every index runs once, in any order, on any worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace weft {

// Calls work(worker, index) for every index below `count` on `threads` workers; the caller is one
// of them. All indices run even when some fail. The failure with the smallest index is then thrown,
// so the error does not depend on the number of threads.
void parallel_for(int threads, size_t count, const std::function<void(int, size_t)>& work);

// `threads`, or the number of usable cores when it is 0; at most kMaxThreads.
inline constexpr int64_t kMaxThreads = 4096;
int thread_count(int64_t threads);

}  // namespace weft
