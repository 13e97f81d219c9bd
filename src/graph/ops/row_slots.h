// The rows that are sent to experts: [sources, parts, slots, columns], one block of slots per
// source of tokens and destination.
#pragma once

#include "graph/ops/shapes.h"

namespace weft {

struct RowSlots {
  int64_t sources, parts, slots;

  Shape shape() const { return {sources, parts, slots}; }
};

// The attributes of an op that makes rows from tokens; `per_token` [batch,time,...] is one of its
// operands.
inline RowSlots row_slots(const Call& call, const TensorType& per_token) {
  const RowSlots rows{call.int_attr("sources"), call.int_attr("parts"), call.int_attr("slots")};
  call.require(rows.sources > 0 && rows.parts > 0 && rows.slots > 0,
               "sources, parts and slots are ", rows.sources, ", ", rows.parts, " and ", rows.slots,
               ", expected positive numbers");
  const int64_t tokens = row_count(per_token);
  call.require(per_token.shape.size() == 3 && tokens % rows.sources == 0, "the tokens of ",
               per_token, " are not divided evenly among ", rows.sources, " sources");
  return rows;
}

// A rank has as many of the sources as it has of the tokens.
inline void localize_sources(const TensorType& per_token, Call& local) {
  const int64_t ranks = row_count(per_token) / row_count(local.type(0));
  Attr& sources = local.attrs.at(local.op->parsed().attr_index("sources"));
  sources = std::max<int64_t>(std::get<int64_t>(sources) / ranks, 1);
}

}  // namespace weft
