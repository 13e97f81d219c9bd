// Runs the same body on every rank of a mesh, over threads or over processes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "runtime/comm/communicator.h"
#include "runtime/device.h"

namespace weft {

enum class Transport { Threads, Shm };

// The work of a rank. It throws to fail: expectations of a forked process would be lost.
using RankBody = std::function<void(Communicator&, Device&)>;

struct RanksOptions {
  Transport transport = Transport::Threads;
  CommOptions comm = {};
};

// The error of each rank, by rank; "" for success. Over processes the launcher's messages, if there
// are any.
std::vector<std::string> run_ranks(const Mesh& mesh, const RanksOptions& options,
                                   const RankBody& body);

// A mesh from names and sizes, outermost first.
Mesh make_mesh(std::vector<MeshAxis> axes);

// Throws std::runtime_error unless the condition holds.
void require(bool condition, const std::string& message);

}  // namespace weft
