// Which library algorithms a device uses. Different algorithms may give different bits, so they are
// measured once and stored in a file (config/tuning.h); a run never measures them itself.
#pragma once

#include <map>
#include <string>

namespace weft {

struct Tuning {
  std::string device;   // the device measured, as it describes itself
  std::string library;  // the version of the library measured
  // Maps each call to its algorithm, both in the backend's own notation.
  std::map<std::string, std::string, std::less<>> choices;

  bool empty() const { return choices.empty(); }
};

}  // namespace weft
