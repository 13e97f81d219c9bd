// The outputs being written, kept where a signal handler can remove them without a lock or an
// allocation when the process must end at once.
#pragma once

#include <string>

namespace weft {

// Remembers a path until it is forgotten and returns its slot. Returns -1 when no slot is free or
// the path is too long; the file then stays behind, as it does when the process is killed.
int remember_partial(const std::string& path) noexcept;
void forget_partial(int place) noexcept;

// Removes the remembered files; safe in a signal handler.
void remove_partial_files() noexcept;

}  // namespace weft
