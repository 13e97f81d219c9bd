// The child processes of a process.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>
#include <vector>

namespace weft {

// The children of a process, oldest first, from /proc.
inline std::vector<pid_t> children_of(pid_t parent) {
  const std::string pid = std::to_string(parent);
  std::ifstream file("/proc/" + pid + "/task/" + pid + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace weft
