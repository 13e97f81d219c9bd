#include "runtime/cuda/device/library.h"

#include <dlfcn.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace weft::cuda {

Library::Library(std::string file, const std::string& package) : file_(std::move(file)) {
  // The second path is where NVIDIA's packages install it, in case the loader does not know it.
  std::vector<std::string> reasons;
  for (const std::string& path : {file_, "/usr/local/cuda/lib64/" + file_}) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    const char* reason = dlerror();
    reasons.emplace_back(reason != nullptr ? reason : path);
  }
  throw DeviceError(cat("cuda: ", file_, " does not load (", join(reasons, "; "), "); install ",
                        package, " or add its folder to LD_LIBRARY_PATH"),
                    ExitCode::Config);
}

Library::~Library() {
  dlclose(handle_);
}

void* Library::find(const char* name) const {
  void* symbol = dlsym(handle_, name);
  if (symbol != nullptr) return symbol;
  throw DeviceError(cat("cuda: ", file_, " has no ", name, "; install a newer version of it"),
                    ExitCode::Config);
}

}  // namespace weft::cuda
