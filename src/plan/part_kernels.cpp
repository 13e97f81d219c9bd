// Chooses the kernels of parts from the same table as for separate ops, so both run the same
// kernels.
#include "plan/part_kernels.h"

#include <algorithm>

#include "base/error.h"
#include "graph/parts.h"
#include "plan/memory.h"

namespace weft {
namespace {

const Kernel& kernel_of(std::span<const Kernel> kernels, const Part& part) {
  return choose_kernel(kernels, part.call, "part", part.call.op->name());
}

// The offset of each temporary in the workspace; the last entry is their end.
std::vector<int64_t> temporary_offsets(const std::vector<Part>& parts) {
  std::vector<int64_t> offsets = {0};
  for (const Part& part : parts) {
    for (size_t i = 0; i < part.results.size(); ++i) {
      if (part.results[i].kind != PartPlace::Kind::Temporary) continue;
      offsets.push_back(offsets.back() + align_up(part.call.results[i].bytes()));
    }
  }
  return offsets;
}

struct PreparedParts {
  std::vector<Part> parts;
  std::vector<Launch> launches;
  std::vector<const Kernel*> kernels;
};

}  // namespace

Decision parts_supported(std::span<const Kernel> kernels, const Call& call) {
  try {
    for (const Part& part : parts_of(call)) kernel_of(kernels, part);
  } catch (const UserError& error) {
    return Decision::no(error.what());
  }
  return Decision::yes();
}

int64_t parts_workspace(std::span<const Kernel> kernels, const Call& call) {
  const std::vector<Part> parts = parts_of(call);
  int64_t most = 0;
  for (const Part& part : parts) {
    const Kernel& kernel = kernel_of(kernels, part);
    if (kernel.workspace != nullptr) most = std::max(most, kernel.workspace(part.call));
  }
  return temporary_offsets(parts).back() + most;
}

std::shared_ptr<const void> prepare_parts(std::span<const Kernel> kernels, const Launch& launch) {
  auto prepared = std::make_shared<PreparedParts>();
  prepared->parts = parts_of(*launch.call);
  const std::vector<int64_t> offsets = temporary_offsets(prepared->parts);
  char* memory = static_cast<char*>(launch.workspace);
  for (const Part& part : prepared->parts) {
    const auto tensor = [&](const PartPlace& place, const TensorType& type) {
      switch (place.kind) {
        case PartPlace::Kind::Operand:
          return launch.operands.at(place.index);
        case PartPlace::Kind::Result:
          return launch.results.at(place.index);
        case PartPlace::Kind::Temporary:
          break;
      }
      return Tensor{memory + offsets.at(place.index), type.dtype, type.shape};
    };
    Launch& inner = prepared->launches.emplace_back(launch);
    inner.call = &part.call;
    inner.operands.clear();
    inner.results.clear();
    for (size_t i = 0; i < part.operands.size(); ++i) {
      inner.operands.push_back(tensor(part.operands[i], part.call.operands[i]));
    }
    for (size_t i = 0; i < part.results.size(); ++i) {
      inner.results.push_back(tensor(part.results[i], part.call.results[i]));
    }
    inner.workspace = memory + offsets.back();
    inner.workspace_bytes = launch.workspace_bytes - offsets.back();
    prepared->kernels.push_back(&kernel_of(kernels, part));
    prepare(*prepared->kernels.back(), inner);
  }
  return prepared;
}

void launch_parts(std::span<const Kernel> kernels, const Launch& launch) {
  const auto prepared = launch.prepared ? launch.prepared : prepare_parts(kernels, launch);
  const auto& parts = *static_cast<const PreparedParts*>(prepared.get());
  for (size_t i = 0; i < parts.launches.size(); ++i) parts.kernels[i]->launch(parts.launches[i]);
}

}  // namespace weft
