// A library to preload into a program (LD_PRELOAD): it counts the calls that change what is on disk
// below a folder of checkpoints, over all processes of the job, and makes the n-th one fail or
// kills there. So every system call of a save is a crash point, in the program as it is built for
// users.
//
//   FAULT_STATE=FILE   a file of eight zero bytes, the shared count
//   FAULT=kill:N       before the N-th call, kill the process that makes it
//   FAULT=killall:N    the same for its process group
//   FAULT=CALL:ERRNO:N make the N-th call of that name fail with this error number; 0: every one
//   FAULT=short:N      make the N-th pwrite write half of its bytes
//   FAULT=slow:N       make every pwrite take N milliseconds longer
//   FAULT=full:0       report 4 KiB of free space there
//   FAULT_LOG=FILE     append the name and path of every counted call
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr const char* kFolder = "/checkpoints";

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::atomic<long>* shared_count() {
  static std::atomic<long>* const count = [] {
    const char* path = std::getenv("FAULT_STATE");
    if (path == nullptr) return static_cast<std::atomic<long>*>(nullptr);
    const int file = real<int (*)(const char*, int, ...)>("open")(path, O_RDWR);
    void* memory = ::mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return static_cast<std::atomic<long>*>(memory);
  }();
  return count;
}

void append_log(const char* call, const std::string& path) {
  const char* log = std::getenv("FAULT_LOG");
  if (log == nullptr) return;
  const int file =
      real<int (*)(const char*, int, ...)>("open")(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
  const std::string line = std::string(call) + " " + path + "\n";
  real<ssize_t (*)(int, const void*, size_t)>("write")(file, line.data(), line.size());
  real<int (*)(int)>("close")(file);
}

struct Verdict {
  int error = 0;          // fail with this
  bool is_short = false;  // write half
};

// Counts a call and decides what happens to it.
Verdict judge(const char* call, const std::string& path) {
  const char* fault = std::getenv("FAULT");
  if (fault == nullptr || shared_count() == nullptr) return {};
  if (path.find(kFolder) == std::string::npos || path.ends_with("/.lock")) return {};
  const std::string plan = fault;
  const std::string kind = plan.substr(0, plan.find(':'));
  const long number = std::atol(plan.substr(plan.rfind(':') + 1).c_str());
  if (kind == "slow" && std::strcmp(call, "pwrite") == 0) {
    ::usleep(static_cast<useconds_t>(number * 1000));
  }
  const bool kills = kind == "kill" || kind == "killall";
  const bool counts =
      kills || kind == call || (kind == "short" && std::strcmp(call, "pwrite") == 0);
  if (!counts) return {};
  append_log(call, path);
  const long count = shared_count()->fetch_add(1) + 1;
  const bool every = number == 0 && kind == call;
  if (count != number && !every) return {};
  if (kind == "kill") ::kill(::getpid(), SIGKILL);
  if (kind == "killall") ::kill(0, SIGKILL);
  if (kind == "short") return {0, true};
  return {std::atoi(plan.substr(kind.size() + 1).c_str()), false};
}

std::string path_of(int descriptor) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = ::readlink(link, path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

// Relative paths of the *at functions are below a folder that was opened before.
std::string path_at(int folder, const char* path) {
  return path[0] == '/' || folder == AT_FDCWD ? path : path_of(folder) + "/" + path;
}

template <class Call>
auto checked(const char* name, const std::string& path, Call call) -> decltype(call()) {
  const Verdict verdict = judge(name, path);
  if (verdict.error == 0) return call();
  errno = verdict.error;
  return -1;
}

bool is_writable(int descriptor) {
  return (::fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = static_cast<mode_t>(va_arg(list, int));
  va_end(list);
  const auto next = real<int (*)(const char*, int, ...)>("open");
  if ((flags & O_ACCMODE) == O_RDONLY) return next(path, flags, mode);
  return checked("open", path, [&] { return next(path, flags, mode); });
}

int mkdir(const char* path, mode_t mode) {
  return checked("mkdir", path,
                 [&] { return real<int (*)(const char*, mode_t)>("mkdir")(path, mode); });
}

int rename(const char* from, const char* to) {
  return checked("rename", from,
                 [&] { return real<int (*)(const char*, const char*)>("rename")(from, to); });
}

int unlink(const char* path) {
  return checked("unlink", path, [&] { return real<int (*)(const char*)>("unlink")(path); });
}

int rmdir(const char* path) {
  return checked("rmdir", path, [&] { return real<int (*)(const char*)>("rmdir")(path); });
}

int remove(const char* path) {
  return checked("remove", path, [&] { return real<int (*)(const char*)>("remove")(path); });
}

int unlinkat(int folder, const char* path, int flags) {
  return checked("unlinkat", path_at(folder, path), [&] {
    return real<int (*)(int, const char*, int)>("unlinkat")(folder, path, flags);
  });
}

int fallocate(int file, int mode, off_t offset, off_t length) {
  return checked("fallocate", path_of(file), [&] {
    return real<int (*)(int, int, off_t, off_t)>("fallocate")(file, mode, offset, length);
  });
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  const auto next = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  const Verdict verdict = judge("pwrite", path_of(file));
  if (verdict.is_short) return next(file, data, (bytes + 1) / 2, offset);
  if (verdict.error == 0) return next(file, data, bytes, offset);
  errno = verdict.error;
  return -1;
}

int statvfs(const char* path, struct statvfs* status) {
  const int result = real<int (*)(const char*, struct statvfs*)>("statvfs")(path, status);
  const char* fault = std::getenv("FAULT");
  const bool counts = std::strstr(path, kFolder) != nullptr;
  if (counts && fault != nullptr && std::strcmp(fault, "full:0") == 0) {
    status->f_bavail = 4096 / status->f_frsize;
  }
  return result;
}

int fsync(int file) {
  return checked("fsync", path_of(file), [&] { return real<int (*)(int)>("fsync")(file); });
}

int close(int file) {
  const auto next = real<int (*)(int)>("close");
  if (!is_writable(file)) return next(file);
  const Verdict verdict = judge("close", path_of(file));
  const int result = next(file);  // even a failing close closes the descriptor
  if (verdict.error == 0) return result;
  errno = verdict.error;
  return -1;
}

}  // extern "C"
