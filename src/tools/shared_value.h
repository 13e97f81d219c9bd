// Results that forked benchmark ranks leave for the process that prints.
#pragma once

#include <sys/mman.h>

#include <new>
#include <type_traits>

#include "base/error.h"

namespace weft {

// A value in memory shared by this process and the processes it forks.
template <class T>
class SharedValue {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  SharedValue()
      : memory_(
            ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) {
      throw DeviceError("no memory to share with the ranks", ExitCode::OutOfMemory);
    }
    new (memory_) T{};
  }
  ~SharedValue() { ::munmap(memory_, sizeof(T)); }
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;

  T& operator*() const { return *static_cast<T*>(memory_); }
  T* operator->() const { return static_cast<T*>(memory_); }

 private:
  void* memory_;
};

}  // namespace weft
