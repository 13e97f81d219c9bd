// Asks the operating system.
#include "base/machine.h"

#include <unistd.h>

namespace weft {

int64_t host_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace weft
