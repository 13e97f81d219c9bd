// The outputs that are being written, where a signal handler finds them: it removes them without a
// lock or an allocation when the process is to end at once.
#pragma once

#include <string>

namespace weft {

// Remembers a path until it is forgotten. Gives its place; -1 when there is none left or the path
// is too long, and then the file stays behind as it does when the process is killed.
int remember_partial(const std::string& path) noexcept;
void forget_partial(int place) noexcept;

// Removes the files that are remembered; safe in a signal handler.
void remove_partial_files() noexcept;

}  // namespace weft
