// The rows that are sent to experts, [sources, parts, slots, columns]: how the offsets of a launch
// divide them, and which of them a token has.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "plan/kernel.h"

namespace weft {

// Consecutive rows, counted among those of all sources and parts.
struct RowRange {
  int64_t first = 0, rows = 0;
};

struct ExpertRows {
  const int32_t* offsets = nullptr;
  int64_t sources = 0, parts = 0, slots = 0;
  int64_t per_part = 0;  // experts

  WEFT_HOST_DEVICE int64_t experts() const { return parts * per_part; }

  // Those of one source for an expert.
  WEFT_HOST_DEVICE RowRange of(int64_t source, int64_t expert) const {
    return range(source * parts + expert / per_part, expert % per_part, 1);
  }

  // Those of a source and part, which are numbered together.
  WEFT_HOST_DEVICE RowRange in_block(int64_t block) const { return range(block, 0, per_part); }

 private:
  WEFT_HOST_DEVICE RowRange range(int64_t block, int64_t expert, int64_t count) const {
    const int32_t* begin = offsets + block * (per_part + 1) + expert;
    return {block * slots + begin[0], begin[count] - begin[0]};
  }
};

inline ExpertRows expert_rows(const Tensor& rows, const Tensor& offsets) {
  ExpertRows result;
  result.offsets = offsets.as<int32_t>();
  result.sources = rows.shape.at(0);
  result.parts = rows.shape.at(1);
  result.slots = rows.shape.at(2);
  result.per_part = offsets.shape.at(2) - 1;
  return result;
}

// The rows of a token.
struct TokenRows {
  const int32_t* at = nullptr;
  int64_t first = 0;  // of the token's source

  // -1 if the choice has none.
  WEFT_HOST_DEVICE int64_t row(int64_t choice) const {
    return at[choice] < 0 ? -1 : first + at[choice];
  }
};

struct RowPlaces {
  const int32_t* at = nullptr;
  int64_t tokens = 0, choices = 0;
  int64_t tokens_per_source = 0, rows_per_source = 0;

  WEFT_HOST_DEVICE TokenRows of(int64_t token) const {
    return {at + token * choices, token / tokens_per_source * rows_per_source};
  }
};

inline RowPlaces row_places(const Tensor& rows, const Tensor& at) {
  return {at.as<int32_t>(), row_count(at), row_length(at), row_count(at) / rows.shape.at(0),
          rows.shape.at(1) * rows.shape.at(2)};
}

}  // namespace weft
