// Asks the operating system.
#include "base/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "base/text.h"

namespace weft {

int64_t host_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

int64_t resident_bytes() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/statm", "re"),
                                                   std::fclose);
  long all = 0;  // in pages
  long resident = 0;
  if (file == nullptr || std::fscanf(file.get(), "%ld %ld", &all, &resident) != 2) return 0;
  return static_cast<int64_t>(resident) * sysconf(_SC_PAGESIZE);
}

int64_t host_cache_bytes() {
  int64_t largest = 0;
  for (int index = 0;; ++index) {
    // "32768K"
    std::ifstream file(cat("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    int64_t kibibytes = 0;
    if (!(file >> kibibytes)) return largest;
    largest = std::max(largest, kibibytes << 10);
  }
}

int64_t usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Fails on machines with more cores than the set can hold.
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  return std::max<int64_t>(1, known ? CPU_COUNT(&allowed) : std::thread::hardware_concurrency());
}

}  // namespace weft
