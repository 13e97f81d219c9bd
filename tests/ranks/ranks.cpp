#include "ranks/ranks.h"

#include <stdexcept>
#include <thread>

#include "runtime/comm/launcher.h"
#include "runtime/comm/shm.h"
#include "runtime/comm/threads.h"
#include "runtime/cpu/device.h"

namespace weft {
namespace {

std::vector<std::string> run_threads(const Mesh& mesh, const RanksOptions& options,
                                     const RankBody& body) {
  ThreadsJob job(mesh.ranks());
  std::vector<std::string> errors(static_cast<size_t>(mesh.ranks()));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto comm = job.connect({mesh, rank}, options.comm);
        HostDevice device(1);
        body(*comm, device);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> run_processes(const Mesh& mesh, const RanksOptions& options,
                                       const RankBody& body) {
  std::vector<std::string> messages;
  LaunchOptions launch;
  launch.ranks = mesh.ranks();
  launch.report = [&](const std::string& message) { messages.push_back(message); };
  const int code = launch_ranks(launch, [&](int64_t rank, ShmJob& job) {
    const auto comm = job.connect({mesh, rank}, options.comm);
    HostDevice device(1);
    body(*comm, device);
    return 0;
  });
  if (code != 0) messages.push_back(cat("exit code ", code));
  return messages;
}

}  // namespace

std::vector<std::string> run_ranks(const Mesh& mesh, const RanksOptions& options,
                                   const RankBody& body) {
  return options.transport == Transport::Threads ? run_threads(mesh, options, body)
                                                 : run_processes(mesh, options, body);
}

Mesh make_mesh(std::vector<MeshAxis> axes) {
  Mesh mesh;
  mesh.axes = std::move(axes);
  return mesh;
}

void require(bool condition, const std::string& message) {
  if (!condition) throw std::runtime_error(message);
}

}  // namespace weft
