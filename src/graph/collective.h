// What passes, costs and plans ask about a collective. A definition names one record, which the op
// that starts the collective shares; nothing outside the transports asks for a collective by name.
#pragma once

#include <string_view>

#include "config/device_spec.h"
#include "graph/streams.h"

namespace weft {

// The side whose tensors count: those that are gathered, scattered, summed or sent.
enum class CollectiveSide { Operands, Results };

// Flat tensors are the members of one buffer. `ByDim`: flat unless the attribute `dim` is given.
enum class CollectiveLayout { Flat, ByDim, Tensors };

// How much of the tensors that count one of n ranks sends: (n-1)/n, twice that, or all.
enum class CollectiveSent { Shares, SharesTwice, All };

struct CollectiveInfo {
  CollectiveSide full = CollectiveSide::Operands;
  // Whether the other side is one rank's shard, so that a flat buffer has a slot for every rank.
  bool sharded = true;
  bool reduces = false;  // sums over the ranks
  CollectiveLayout layout = CollectiveLayout::Tensors;
  CollectiveSent sent = CollectiveSent::Shares;
  // The entries of a link that give its time: latency + bytes / bandwidth.
  double Link::*latency = nullptr;
  double Link::*bandwidth = nullptr;
  StreamId stream = StreamId::Compute;  // of the op that starts it
  bool prefetchable = false;            // may start early if its operand is storage
  // The attributes with the dim along which an operand consists of one message per rank, and a
  // result likewise; "": it is one message.
  std::string_view operand_dim = "";
  std::string_view result_dim = "";
};

}  // namespace weft
