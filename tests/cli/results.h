// What must be the same in two runs of the built command.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/workspace.h"

namespace weft {

// What must be the same in two runs, from a step on: metrics by line, but for times.
inline std::vector<std::string> results_from(const Workspace& work, const std::string& run,
                                             int64_t step) {
  std::vector<std::string> lines;
  for (nlohmann::json line : work.metrics(run + "/metrics.jsonl")) {
    if (line.at("step") < step || line.contains("checkpoint") || line.contains("resumed_from")) {
      continue;
    }
    for (const char* key : {"seconds", "tokens_per_second", "mfu", "memory_bytes"}) line.erase(key);
    lines.push_back(line.dump());
  }
  return lines;
}

inline void expect_same_tensors(const Workspace& work, const std::string& a, const std::string& b) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(work.folder().read(a + "/" + name) == work.folder().read(b + "/" + name))
        << a << " " << b << " " << name;
  }
}

}  // namespace weft
