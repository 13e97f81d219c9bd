// Chunks along time, columns, shards along a dim, repeated heads, and heads with a shared part,
// element by element.
#include <algorithm>
#include <cstring>

#include "plan/repeated_heads.h"
#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

// Elements of one sample.
int64_t per_sample(const Tensor& tensor) {
  return tensor.elements() / tensor.shape.at(0);
}

// The element at a column of a row.
char* at(const Tensor& tensor, int64_t row, int64_t column) {
  return tensor.as<char>() + (row * row_length(tensor) + column) * dtype_bytes(tensor.dtype);
}

// The heads of this rank; all of them without a coordinate.
RepeatedHeads heads_of(const Launch& launch) {
  const int64_t index = launch.operands.size() > 1 ? read_ints(launch.operands[1]).at(0) : 0;
  return repeated_heads(*launch.call, index);
}

}  // namespace

void split_time(const Launch& launch) {
  const Tensor& x = launch.operands[0];
  const Tensor& y = launch.results[0];
  const int64_t shards = launch.call->int_attr("shards");
  const int64_t taken = per_sample(y) / shards, each = per_sample(x) / shards;
  const int64_t first = launch.call->int_attr("index") * taken;
  const auto chunk = [&](const auto& all) {
    std::decay_t<decltype(all)> part;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const int64_t at = i / taken * each + first + i % taken;
      part.push_back(all[static_cast<size_t>(at)]);
    }
    return part;
  };
  if (is_floating(x.dtype)) {
    write(y, chunk(read(x)));
    return;
  }
  const std::vector<int32_t> part = chunk(read_ints(x));
  std::copy(part.begin(), part.end(), y.as<int32_t>());
}

void take_shard(const Launch& launch) {
  const Tensor& x = launch.operands[0];
  const Tensor& y = launch.results[0];
  const auto dim = static_cast<size_t>(launch.call->int_attr("dim"));
  int64_t inner = 1;
  for (size_t i = dim + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  const int64_t part = y.shape.at(dim), size = x.shape.at(dim);
  std::vector<int64_t> held;
  for (const DimRange& range :
       shard_ranges(launch.call->text_attr("axis"), size, (size + part - 1) / part,
                    read_ints(launch.operands[1]).at(0))) {
    for (int64_t i = 0; i < range.size; ++i) held.push_back(range.begin + i);
  }
  const auto range = [&](const auto& all) {
    std::decay_t<decltype(all)> taken;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const auto at = static_cast<size_t>(i / inner % part);
      const int64_t row = i / inner / part * size;
      taken.push_back(
          at < held.size() ? all[static_cast<size_t>((row + held[at]) * inner + i % inner)] : 0);
    }
    return taken;
  };
  if (is_floating(x.dtype)) {
    write(y, range(read(x)));
    return;
  }
  const std::vector<int32_t> taken = range(read_ints(x));
  std::copy(taken.begin(), taken.end(), y.as<int32_t>());
}

void split_columns(const Launch& launch) {
  const Tensor& packed = launch.operands[0];
  int64_t column = 0;
  for (const Tensor& part : launch.results) {
    const auto bytes = static_cast<size_t>(row_length(part) * dtype_bytes(part.dtype));
    for (int64_t row = 0; row < row_count(part); ++row) {
      std::memcpy(at(part, row, 0), at(packed, row, column), bytes);
    }
    column += row_length(part);
  }
}

void concat_columns(const Launch& launch) {
  const Tensor& packed = launch.results[0];
  int64_t column = 0;
  for (const Tensor& part : launch.operands) {
    const auto bytes = static_cast<size_t>(row_length(part) * dtype_bytes(part.dtype));
    for (int64_t row = 0; row < row_count(part); ++row) {
      std::memcpy(at(packed, row, column), at(part, row, 0), bytes);
    }
    column += row_length(part);
  }
}

void latent_qkv(const Launch& launch) {
  const Tensor& qkv = launch.results[0];
  const int64_t heads = launch.call->int_attr("heads");
  const Values q = read(launch.operands[0]), kv = read(launch.operands[1]);
  const Values shared = read(launch.operands[2]);
  const int64_t dim = row_length(launch.operands[0]) / heads;
  const int64_t shared_dim = row_length(launch.operands[2]), own = dim - shared_dim;
  const int64_t pair =
      row_length(launch.operands[1]) / heads;  // the own part of a key, and a value
  Values packed;
  const auto append = [&](const Values& from, int64_t first, int64_t n) {
    packed.insert(packed.end(), from.begin() + first, from.begin() + first + n);
  };
  for (int64_t row = 0; row < row_count(qkv); ++row) {
    append(q, row * heads * dim, heads * dim);
    for (int64_t head = 0; head < heads; ++head) {
      append(kv, (row * heads + head) * pair, own);
      append(shared, row * shared_dim, shared_dim);
    }
    for (int64_t head = 0; head < heads; ++head) {
      append(kv, (row * heads + head) * pair + own, pair - own);
    }
  }
  write(qkv, packed);
}

void latent_qkv_grad(const Launch& launch) {
  const Tensor& dqkv = launch.operands[0];
  const int64_t heads = launch.call->int_attr("heads");
  const int64_t value_dim = launch.call->int_attr("value_dim");
  const int64_t shared_dim = launch.call->int_attr("shared_dim");
  const int64_t dim = row_length(launch.results[0]) / heads, own = dim - shared_dim;
  const Values packed = read(dqkv);
  Values dq, dkv, dshared(static_cast<size_t>(launch.results[2].elements()), 0.0);
  for (int64_t row = 0; row < row_count(dqkv); ++row) {
    const auto q = packed.begin() + row * row_length(dqkv);
    const auto k = q + heads * dim, v = k + heads * dim;
    dq.insert(dq.end(), q, k);
    for (int64_t head = 0; head < heads; ++head) {
      dkv.insert(dkv.end(), k + head * dim, k + head * dim + own);
      dkv.insert(dkv.end(), v + head * value_dim, v + (head + 1) * value_dim);
      for (int64_t i = 0; i < shared_dim; ++i) {
        dshared[static_cast<size_t>(row * shared_dim + i)] += k[head * dim + own + i];
      }
    }
  }
  write(launch.results[0], dq);
  write(launch.results[1], dkv);
  write(launch.results[2], dshared);
}

void repeat_kv(const Launch& launch) {
  const Tensor& y = launch.results[0];
  const RepeatedHeads heads = heads_of(launch);
  const Values w = read(launch.operands[0]);
  const int64_t each = y.elements() / heads.size();  // elements of a head
  Values copies;
  for (int64_t at = 0; at < heads.size(); ++at) {
    const auto from = w.begin() + heads.source(at) * each;
    copies.insert(copies.end(), from, from + each);
  }
  write(y, copies);
}

void repeat_kv_grad(const Launch& launch) {
  const Tensor& dw = launch.results[0];
  const RepeatedHeads heads = heads_of(launch);
  const Values dy = read(launch.operands[0]);
  const int64_t each = launch.operands[0].elements() / heads.size();
  Values sums(static_cast<size_t>(dw.elements()));
  for (int64_t i = 0; i < dw.elements(); ++i) {
    const auto [begin, end] = heads.copies_of(i / each);
    for (int64_t at = begin; at < end; ++at) {
      sums[static_cast<size_t>(i)] += dy[static_cast<size_t>(at * each + i % each)];
    }
  }
  write(dw, sums);
}

void to_partial(const Launch& launch) {
  const bool counts = read_ints(launch.operands[1]).at(0) == 0;
  Values y = read(launch.operands[0]);
  if (!counts) std::fill(y.begin(), y.end(), 0.0);
  write(launch.results[0], y);
}

void concat_time(const Launch& launch) {
  const Tensor& y = launch.results[0];
  Values full(static_cast<size_t>(y.elements()));
  for (size_t p = 0; p < launch.operands.size(); ++p) {
    const Tensor& x = launch.operands[p];
    const Values chunk = read(x);
    const int64_t shards = launch.call->int_attr("shards");
    const int64_t given = per_sample(x) / shards, each = per_sample(y) / shards;
    const int64_t first = static_cast<int64_t>(p) * given;
    for (int64_t i = 0; i < x.elements(); ++i) {
      const int64_t at = i / given * each + first + i % given;
      full[static_cast<size_t>(at)] = chunk[static_cast<size_t>(i)];
    }
  }
  write(y, full);
}

}  // namespace weft::reference
