// Which algorithms of its libraries a device uses. Another algorithm may give other bits, so they
// are measured once and kept in a file (config/tuning.h); a run takes them from there or not at
// all.
#pragma once

#include <map>
#include <string>

namespace weft {

struct Tuning {
  std::string device;   // that it was measured on, as it describes itself
  std::string library;  // and the version of the library
  // The algorithm of each call, both as the backend writes them.
  std::map<std::string, std::string, std::less<>> choices;

  bool empty() const { return choices.empty(); }
};

}  // namespace weft
