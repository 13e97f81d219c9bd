#include "base/partial_files.h"

#include <unistd.h>

#include <atomic>
#include <cstring>

namespace weft {

namespace {

// More than a save writes at once.
constexpr int kPlaces = 16;
constexpr size_t kMaxPath = 4096;

enum class State { Free, Filling, Held };

struct Place {
  std::atomic<State> state{State::Free};
  char path[kMaxPath] = {};
};

Place g_places[kPlaces];  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

int remember_partial(const std::string& path) noexcept {
  if (path.size() >= kMaxPath) return -1;
  for (int i = 0; i < kPlaces; ++i) {
    State free = State::Free;
    if (!g_places[i].state.compare_exchange_strong(free, State::Filling)) continue;
    std::memcpy(g_places[i].path, path.c_str(), path.size() + 1);
    g_places[i].state = State::Held;
    return i;
  }
  return -1;
}

void forget_partial(int place) noexcept {
  if (place >= 0) g_places[place].state = State::Free;
}

void remove_partial_files() noexcept {
  for (Place& place : g_places) {
    if (place.state == State::Held) ::unlink(place.path);
  }
}

}  // namespace weft
