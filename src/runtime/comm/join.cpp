#include "runtime/comm/join.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/stop.h"
#include "runtime/comm/watchdog.h"

namespace weft {
namespace {

constexpr size_t kMostDescriptors = 200;  // per message; Linux passes 253
constexpr int kTickMilliseconds = 20;

DeviceError socket_error(std::string_view what) {
  return DeviceError(cat("ranks of this host: cannot ", what, ": ", reason_of(errno)));
}

double seconds_since(int64_t start) {
  return static_cast<double>(monotonic_ns() - start) * 1e-9;
}

// An abstract address: it has no file and is gone with its socket.
struct Address {
  explicit Address(const std::string& job) {
    const std::string name = cat("weft-", ::getuid(), "-", hash_text(job));
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t length = 0;
};

Descriptor make_socket() {
  Descriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (made.get() < 0) throw socket_error("make a socket");
  return made;
}

// A peer that connects and says nothing must not hold up the others.
void limit_waits(int socket) {
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::getuid();
}

// One byte with descriptors attached.
struct Message {
  explicit Message(size_t descriptors) : space(CMSG_SPACE(descriptors * sizeof(int))) {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = space.data();
    header.msg_controllen = space.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  char byte = 0;
  iovec part{.iov_base = &byte, .iov_len = 1};
  std::vector<char> space;
  msghdr header{};
};

// A receiver that has died meanwhile is noticed by its closed connection.
void send_descriptors(int socket, const std::vector<int>& all) {
  for (size_t at = 0; at < all.size(); at += kMostDescriptors) {
    const size_t count = std::min(kMostDescriptors, all.size() - at);
    Message message(count);
    cmsghdr* control = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(control), all.data() + at, count * sizeof(int));
    if (::sendmsg(socket, &message.header, MSG_NOSIGNAL) != 1) return;
  }
}

// Empty when the sender has gone.
std::vector<Descriptor> receive_descriptors(int socket, size_t expected) {
  std::vector<Descriptor> all;
  while (all.size() < expected) {
    const size_t count = std::min(kMostDescriptors, expected - all.size());
    Message message(count);
    const ssize_t bytes = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
    if (bytes == 0 || (bytes < 0 && errno == ECONNRESET)) return {};
    if (bytes < 0) throw socket_error("receive the shared memory of rank 0");
    const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
    const bool complete = (message.header.msg_flags & MSG_CTRUNC) == 0 && control != nullptr &&
                          control->cmsg_len == CMSG_LEN(count * sizeof(int));
    if (!complete) throw socket_error("receive all descriptors of rank 0");
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(control) + i * sizeof(int), sizeof descriptor);
      all.emplace_back(descriptor);
    }
  }
  return all;
}

// Rank 0 among the ranks: lets the others in and watches them.
class Leader {
 public:
  explicit Leader(const JoinOptions& options)
      : options_(options), job_(options.ranks), peers_(static_cast<size_t>(options.ranks)) {
    listen();
    const int64_t start = monotonic_ns();
    for (int64_t missing = options.ranks - 1; missing > 0;) {
      pollfd wake{.fd = door_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&wake, 1, kTickMilliseconds) > 0 && admit()) --missing;
      if (missing > 0 && seconds_since(start) > options.start_seconds) throw absent();
    }
    door_.reset();
    send_files();
    watch_ = std::thread([this] { watch(); });
  }
  ~Leader() {
    over_ = true;
    if (watch_.joinable()) watch_.join();
  }
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  int run(const RankMain& body) {
    const int code = run_rank(0, job_, body);
    finish();
    const std::lock_guard lock(mutex_);
    const Verdict verdict = verdict_of(job_.control(), loss_);
    if (verdict.cause.empty()) return code;
    name_cause(verdict.cause);
    return static_cast<int>(verdict.code);
  }

 private:
  void listen() {
    const Address address(options_.job);
    door_ = make_socket();
    if (::bind(door_.get(), address.get(), address.length) != 0) {
      throw DeviceError(cat("rank 0: another job on this host has the name \"", options_.job,
                            "\"; wait until it has ended"));
    }
    if (::listen(door_.get(), SOMAXCONN) != 0) throw socket_error("listen");
  }

  // Whether a rank that was missing has come in.
  bool admit() {
    Descriptor peer(::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() < 0 || !is_own_user(peer.get())) return false;
    limit_waits(peer.get());
    int64_t said[2] = {};  // its rank and the number of ranks
    if (::recv(peer.get(), &said, sizeof said, MSG_WAITALL) != sizeof said) return false;
    const int64_t rank = said[0];
    if (said[1] != options_.ranks || rank < 1 || rank >= options_.ranks) return false;
    Descriptor& place = peers_[static_cast<size_t>(rank)];
    if (place.get() >= 0) return false;
    place = std::move(peer);
    return true;
  }

  // Every rank starts now: one that started earlier would take the others for silent.
  void send_files() {
    std::vector<int> files = {job_.files().control.get()};
    for (const Descriptor& arena : job_.files().arenas) files.push_back(arena.get());
    for (size_t i = 1; i < peers_.size(); ++i) send_descriptors(peers_[i].get(), files);
  }

  DeviceError absent() const {
    std::vector<std::string> missing;
    for (size_t i = 1; i < peers_.size(); ++i) {
      if (peers_[i].get() < 0) missing.push_back(cat(i));
    }
    return DeviceError(cat("rank 0 waited ", seconds_text(options_.start_seconds), " for ",
                           missing.size() == 1 ? "rank " : "ranks ", join(missing, ", "),
                           " of this host; see why they did not start"),
                       ExitCode::PeerLost);
  }

  // Ends the job when a rank's connection closes before the rank has said that it is done.
  void watch() {
    const BlockStopSignals block;
    while (!over_) {
      std::vector<pollfd> lines;
      std::vector<int64_t> ranks;
      {
        const std::lock_guard lock(mutex_);
        for (size_t i = 1; i < peers_.size(); ++i) {
          if (peers_[i].get() < 0) continue;
          lines.push_back({.fd = peers_[i].get(), .events = POLLIN, .revents = 0});
          ranks.push_back(static_cast<int64_t>(i));
        }
      }
      ::poll(lines.data(), lines.size(), kTickMilliseconds);
      for (size_t i = 0; i < lines.size(); ++i) {
        if ((lines[i].revents & POLLHUP) != 0) note_end(ranks[i]);
      }
    }
  }

  void note_end(int64_t rank) {
    const Control& control = job_.control();
    const RankState state = control.state(rank);
    const std::lock_guard lock(mutex_);
    peers_[static_cast<size_t>(rank)].reset();
    if (state == RankState::Done || state == RankState::Failed) return;
    const std::string message = cat("rank ", rank, " (pid ", control.at(rank).process.load(),
                                    ") died ", control.whereabouts(rank));
    if (loss_.empty()) loss_ = message;
    name_cause(loss_);
    control.abort(-1, message, ExitCode::PeerLost);
  }

  // Waits until every rank has ended, for a while only once the job is aborted.
  void finish() {
    std::optional<int64_t> aborted;
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        const bool ended = std::all_of(peers_.begin(), peers_.end(),
                                       [](const Descriptor& peer) { return peer.get() < 0; });
        if (ended) return;
      }
      if (!aborted && job_.control().aborted()) aborted = monotonic_ns();
      if (aborted && seconds_since(*aborted) > options_.grace_seconds) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(kTickMilliseconds));
    }
  }

  void name_cause(const std::string& cause) {
    if (!cause_named_) std::fprintf(stderr, "weft: %s\n", cause.c_str());
    cause_named_ = true;
  }

  const JoinOptions& options_;
  ShmJob job_;
  Descriptor door_;
  std::mutex mutex_;               // guards the three below
  std::vector<Descriptor> peers_;  // by rank; closed: rank 0 itself, and ranks that have ended
  std::string loss_;
  bool cause_named_ = false;
  std::atomic<bool> over_ = false;
  std::thread watch_;
};

// Connects to rank 0, which may start later.
Descriptor find_leader(const JoinOptions& options) {
  const Address address(options.job);
  const int64_t start = monotonic_ns();
  while (true) {
    Descriptor line = make_socket();
    if (::connect(line.get(), address.get(), address.length) == 0) {
      if (is_own_user(line.get())) return line;
      throw DeviceError(
          cat("rank ", options.rank, ": a process of another user answers as rank 0"));
    }
    if (seconds_since(start) > options.start_seconds) {
      throw DeviceError(cat("rank ", options.rank, " waited ", seconds_text(options.start_seconds),
                            " for rank 0 of this host; see why it did not start"),
                        ExitCode::PeerLost);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kTickMilliseconds));
  }
}

int run_follower(const JoinOptions& options, const RankMain& body) {
  Descriptor line = find_leader(options);
  const int64_t said[2] = {options.rank, options.ranks};
  if (::send(line.get(), &said, sizeof said, MSG_NOSIGNAL) != sizeof said) {
    throw socket_error("talk to rank 0");
  }
  std::vector<Descriptor> files =
      receive_descriptors(line.get(), static_cast<size_t>(options.ranks) + 1);
  if (files.empty()) return static_cast<int>(ExitCode::PeerLost);  // rank 0 says why
  ShmFiles shared{.control = std::move(files[0]), .arenas = {}};
  for (size_t i = 1; i < files.size(); ++i) shared.arenas.push_back(std::move(files[i]));
  ShmJob job(std::move(shared), std::move(line));
  const int code = run_rank(options.rank, job, body);
  // Rank 0 speaks for all ranks unless it is the one that died.
  if (!job.launcher_alive() && job.control().aborted() &&
      job.control().abort_rank() == options.rank) {
    std::fprintf(stderr, "weft: %s\n", job.control().abort_reason().c_str());
  }
  return code;
}

}  // namespace

int join_ranks(const JoinOptions& options, const RankMain& body) {
  CHECK(options.rank >= 0 && options.rank < options.ranks, "rank ", options.rank, " of ",
        options.ranks);
  if (options.rank > 0) return run_follower(options, body);
  Leader leader(options);
  return leader.run(body);
}

}  // namespace weft
