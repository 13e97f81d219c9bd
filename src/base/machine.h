// Facts about the machine this process runs on. Only devices and commands ask; a pass never does.
#pragma once

#include <cstdint>

namespace weft {

// Physical memory in bytes.
int64_t host_memory_bytes();

// Resident bytes of this process, including the shared memory it maps; 0 if unknown.
int64_t resident_bytes();

// The largest cache a core reads through; 0 if unknown.
int64_t host_cache_bytes();

// Cores that this process may run on; a scheduler or taskset may allow fewer than the machine has.
int64_t usable_cores();

}  // namespace weft
