// Facts about the machine this process runs on. Only devices and commands ask; a pass never does.
#pragma once

#include <cstdint>

namespace weft {

// Physical memory in bytes.
int64_t host_memory_bytes();

// Bytes that this process has resident, shared memory that it maps included; 0 where the system
// does not say.
int64_t resident_bytes();

// The largest cache that a core reads through; 0 where the system does not tell.
int64_t host_cache_bytes();

// Cores that this process may run on: fewer than the machine has where a scheduler or taskset says
// so.
int64_t usable_cores();

}  // namespace weft
