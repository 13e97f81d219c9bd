// Where activations move next to a matmul that can be computed in chunks of the tokens, and what
// that costs: the time from the operand of the edge to its result, by the time model of plans.
#pragma once

#include <span>
#include <vector>

#include "passes/pass.h"

namespace weft {

// A matmul and the gather of its first operand, or the reduction of its result.
struct AsyncEdge {
  Node* collective = nullptr;  // all_gather or reduce_scatter along time, over tp
  Node* matmul = nullptr;

  bool gathers() const;
};

// The chunk of a value of an edge: one of `chunks` along time.
TensorType chunk_type(TensorType type, int64_t chunks);

// Whether the node gathers tokens over tp.
bool gathers_tokens(const Node& node);

// All edges of the graph, in order. A gather counts if the matmul is its first reader; others may
// read the gathered value later. A reduction counts if nothing else reads the matmul.
std::vector<AsyncEdge> find_async_edges(const Graph& graph);

// Whether this number of chunks divides the tokens of a rank's shard.
bool divides_into(const AsyncEdge& edge, const Mesh& mesh, int64_t chunks);

// For each edge the number of chunks with the shortest time, 1 if none gains enough.
std::vector<int64_t> cheapest_chunks(const Graph& graph, std::span<const AsyncEdge> edges,
                                     const DeviceSpec& device);

}  // namespace weft
