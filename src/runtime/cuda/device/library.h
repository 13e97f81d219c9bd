// A CUDA library loaded on first use, so that a build with CUDA starts, plans and trains on the CPU
// on machines without it.
#pragma once

#include <string>

namespace weft::cuda {

class Library {
 public:
  // `file` is e.g. "libcudnn.so.9". Throws DeviceError that says why it does not load and names
  // `package`.
  Library(std::string file, const std::string& package);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Sets a function pointer to the function of that name.
  template <class Function>
  void load(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(find(name));
  }

 private:
  void* find(const char* name) const;

  std::string file_;
  void* handle_ = nullptr;
};

}  // namespace weft::cuda
